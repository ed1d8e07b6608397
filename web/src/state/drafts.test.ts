import { expect, test } from "vitest";
import { draftOf, dropDraft, MAX_DRAFTS } from "./drafts.svelte";

test("a draft is there again, until it is dropped", () => {
  draftOf("one").text = "begun";
  expect(draftOf("two").text).toBe("");
  expect(draftOf("one").text).toBe("begun");
  dropDraft("one");
  expect(draftOf("one").text).toBe("");
});

test("the draft that was not opened for longest goes first", () => {
  for (let number = 0; number < MAX_DRAFTS; number++) draftOf(`${number}`).text = `text ${number}`;
  draftOf("0");
  draftOf("one more").text = "more";
  expect(draftOf("0").text).toBe("text 0");
  expect(draftOf("2").text).toBe("text 2");
  expect(draftOf("1").text).toBe("");
});
