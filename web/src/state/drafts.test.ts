import { expect, test, vi } from "vitest";
import { stored } from "./fake-storage";

type Drafts = typeof import("./drafts.svelte");

/** Loads the module again, as a reload of the page does. */
async function load(): Promise<Drafts> {
  vi.resetModules();
  return import("./drafts.svelte");
}

test("a draft stays until it is deleted", async () => {
  const { draftOf, deleteDraft } = await load();
  draftOf("one").text = "begun";
  expect(draftOf("two").text).toBe("");
  expect(draftOf("one").text).toBe("begun");
  deleteDraft("one");
  expect(draftOf("one").text).toBe("");
});

test("the draft of the session opened longest ago is deleted first", async () => {
  const { draftOf, MAX_DRAFTS } = await load();
  for (let number = 0; number < MAX_DRAFTS; number++) draftOf(`${number}`).text = `text ${number}`;
  draftOf("0");
  draftOf("one more").text = "more";
  expect(draftOf("0").text).toBe("text 0");
  expect(draftOf("2").text).toBe("text 2");
  expect(draftOf("1").text).toBe("");
});

test("a reload keeps drafts, but not what was sent", async () => {
  const before = await load();
  before.draftOf("kept").text = "half a";
  before.draftOf("sent").text = "whole";
  before.saveDrafts();
  before.draftOf("sent").clear();
  const { draftOf } = await load();
  expect(draftOf("kept").text).toBe("half a");
  expect(draftOf("sent").text).toBe("");
});

test("of too many characters, those of the sessions opened last are stored", async () => {
  const before = await load();
  before.draftOf("first").text = "a";
  before.draftOf("large").text = "b".repeat(before.MAX_STORED_CHARS);
  before.draftOf("last").text = "c";
  before.saveDrafts();
  const { draftOf } = await load();
  expect(["first", "large", "last"].map((session) => draftOf(session).text)).toEqual(["a", "", "c"]);
});

test("invalid stored data gives empty drafts", async () => {
  for (const other of ["{", "{}", "[1]"]) {
    stored.set("parlor.drafts", other);
    expect((await load()).draftOf("any").text).toBe("");
  }
});
