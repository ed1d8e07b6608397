import { expect, test, vi } from "vitest";
import { stored } from "./fake-storage";

type Outbox = typeof import("./outbox");

/** Loads the module again, as a reload of the page does. */
async function load(): Promise<Outbox> {
  vi.resetModules();
  return import("./outbox");
}

const text = { content: "text", key: "k1" };
const picture = { content: "look", key: "k2", attachments: [{ data: "AAAA", filename: "a.png", content_type: "image/png" }] };

test("waiting messages stay, with their files, until they are removed", async () => {
  const { saveOutbox, loadOutbox } = await load();
  saveOutbox("one", [text, picture]);
  expect(loadOutbox("two")).toEqual([]);
  expect(loadOutbox("one")).toEqual([text, picture]);
  saveOutbox("one", []);
  expect(loadOutbox("one")).toEqual([]);
});

test("texts survive a reload, messages with files do not", async () => {
  (await load()).saveOutbox("one", [text, picture]);
  expect((await load()).loadOutbox("one")).toEqual([text]);
  stored.set("parlor.outbox.one", "{");
  expect((await load()).loadOutbox("one")).toEqual([]);
});

test("the files of all sessions together have a limit", async () => {
  const { isOutboxFull, saveOutbox, MAX_WAITING_CHARS } = await load();
  const large = (length: number) => [{ ...picture, attachments: [{ ...picture.attachments[0]!, data: "A".repeat(length) }] }];
  saveOutbox("one", large(MAX_WAITING_CHARS / 2));
  saveOutbox("two", large(MAX_WAITING_CHARS / 2 - 1));
  expect(isOutboxFull()).toBe(false);
  saveOutbox("two", large(MAX_WAITING_CHARS / 2));
  expect(isOutboxFull()).toBe(true);
  saveOutbox("one", []);
  expect(isOutboxFull()).toBe(false);
});
