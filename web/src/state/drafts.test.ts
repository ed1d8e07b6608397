import { expect, test, vi } from "vitest";
import { stored } from "./storage.fake";

type Drafts = typeof import("./drafts.svelte");

/** The page as it is when it was loaded. */
async function load(): Promise<Drafts> {
  vi.resetModules();
  return import("./drafts.svelte");
}

test("a draft is there again, until it is dropped", async () => {
  const { draftOf, dropDraft } = await load();
  draftOf("one").text = "begun";
  expect(draftOf("two").text).toBe("");
  expect(draftOf("one").text).toBe("begun");
  dropDraft("one");
  expect(draftOf("one").text).toBe("");
});

test("the draft that was not opened for longest goes first", async () => {
  const { draftOf, MAX_DRAFTS } = await load();
  for (let number = 0; number < MAX_DRAFTS; number++) draftOf(`${number}`).text = `text ${number}`;
  draftOf("0");
  draftOf("one more").text = "more";
  expect(draftOf("0").text).toBe("text 0");
  expect(draftOf("2").text).toBe("text 2");
  expect(draftOf("1").text).toBe("");
});

test("a reload keeps what was written, and nothing that was sent", async () => {
  const before = await load();
  before.draftOf("kept").text = "half a";
  before.draftOf("sent").text = "whole";
  before.keepDrafts();
  before.draftOf("sent").clear();
  const { draftOf } = await load();
  expect(draftOf("kept").text).toBe("half a");
  expect(draftOf("sent").text).toBe("");
});

test("of more than is kept, what was opened last is", async () => {
  const before = await load();
  before.draftOf("first").text = "a";
  before.draftOf("large").text = "b".repeat(before.MAX_KEPT_CHARS);
  before.draftOf("last").text = "c";
  before.keepDrafts();
  const { draftOf } = await load();
  expect(["first", "large", "last"].map((session) => draftOf(session).text)).toEqual(["a", "", "c"]);
});

test("what is stored by others is no draft", async () => {
  for (const other of ["{", "{}", "[1]"]) {
    stored.set("parlor.drafts", other);
    expect((await load()).draftOf("any").text).toBe("");
  }
});
