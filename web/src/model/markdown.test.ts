import { expect, it } from "vitest";
import { EMPTY_SPLIT, splitBlocks, withDefinitions } from "./markdown";

const text = "# Title\n\nA paragraph that\ngoes on.\n\n- one\n- two\n\n```rust\nfn main() {}\n\nlet x = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd.";

it("splits a growing text into the same blocks as the complete one", () => {
  const whole = splitBlocks(text, EMPTY_SPLIT);
  let grown = EMPTY_SPLIT;
  for (let end = 1; end <= text.length; end++) grown = splitBlocks(text.slice(0, end), grown);
  expect(grown.blocks.join("")).toBe(text);
  expect(grown.blocks).toEqual(whole.blocks);
});

it("keeps complete blocks unchanged", () => {
  const before = splitBlocks(text, EMPTY_SPLIT);
  const after = splitBlocks(`${text} More.`, before);
  expect(after.blocks.slice(0, -1)).toEqual(before.blocks.slice(0, -1));
  expect(after.blocks.at(-1)).toBe("End. More.");
});

it("shows a replaced text, and one that the lexer would normalise", () => {
  expect(splitBlocks("other", splitBlocks(text, EMPTY_SPLIT)).blocks.join("")).toBe("other");
  expect(splitBlocks("a\r\nb", EMPTY_SPLIT).blocks.join("")).toBe("a\r\nb");
});

it("lets a block use a definition of a later block while the text grows", () => {
  const source = "See [the page][1] and [Home][].\n\nNothing of that here.\n\n[1]: https://example.org/one\n[home]: https://example.org/home 'Home'\n";
  let grown = EMPTY_SPLIT;
  for (let end = 1; end <= source.length; end++) grown = splitBlocks(source.slice(0, end), grown);
  const [first = "", , second = ""] = grown.blocks;
  expect(withDefinitions(first, grown.definitions)).toBe(`[1]: https://example.org/one\n[home]: https://example.org/home 'Home'\n\n${first}`);
  expect(withDefinitions(second, grown.definitions)).toBe(second);
  expect([...grown.definitions]).toEqual([...splitBlocks(source, EMPTY_SPLIT).definitions]);
});

it("returns the same definitions object until one changes, and keeps the first of two definitions", () => {
  const before = splitBlocks("[a]: https://example.org/a\n\n[a] is it.", EMPTY_SPLIT);
  const after = splitBlocks(`${before.text} More.\n\nAnd more.`, before);
  expect(after.definitions).toBe(before.definitions);
  const twice = splitBlocks(`${after.text}\n\n[A]: https://example.org/other\n\nEnd.`, after);
  expect(twice.definitions).toBe(before.definitions);
});
