import { expect, test, vi } from "vitest";
import { stored } from "./storage.fake";

type Outbox = typeof import("./outbox");

/** The page as it is when it was loaded. */
async function load(): Promise<Outbox> {
  vi.resetModules();
  return import("./outbox");
}

const text = { content: "words", key: "k1" };
const picture = { content: "look", key: "k2", attachments: [{ data: "AAAA", filename: "a.png", content_type: "image/png" }] };

test("what waits is there again, with its files, until it is taken", async () => {
  const { keepOutbox, keptOutbox } = await load();
  keepOutbox("one", [text, picture]);
  expect(keptOutbox("two")).toEqual([]);
  expect(keptOutbox("one")).toEqual([text, picture]);
  keepOutbox("one", []);
  expect(keptOutbox("one")).toEqual([]);
});

test("texts outlast a reload, files do not", async () => {
  (await load()).keepOutbox("one", [text, picture]);
  expect((await load()).keptOutbox("one")).toEqual([text]);
  stored.set("parlor.outbox.one", "{");
  expect((await load()).keptOutbox("one")).toEqual([]);
});

test("the files of all sessions together have a limit", async () => {
  const { isOutboxFull, keepOutbox, MAX_WAITING_CHARS } = await load();
  const large = (length: number) => [{ ...picture, attachments: [{ ...picture.attachments[0]!, data: "A".repeat(length) }] }];
  keepOutbox("one", large(MAX_WAITING_CHARS / 2));
  keepOutbox("two", large(MAX_WAITING_CHARS / 2 - 1));
  expect(isOutboxFull()).toBe(false);
  keepOutbox("two", large(MAX_WAITING_CHARS / 2));
  expect(isOutboxFull()).toBe(true);
  keepOutbox("one", []);
  expect(isOutboxFull()).toBe(false);
});
