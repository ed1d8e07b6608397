import { expect, it } from "vitest";
import { complete, cut, UNCUT } from "./markdown";

const text = "# Title\n\nA paragraph that\ngoes on.\n\n- one\n- two\n\n```rust\nfn main() {}\n\nlet x = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd.";

it("cuts a growing text into the same blocks as a whole one", () => {
  const whole = cut(text, UNCUT);
  let grown = UNCUT;
  for (let end = 1; end <= text.length; end++) grown = cut(text.slice(0, end), grown);
  expect(grown.blocks.join("")).toBe(text);
  expect(grown.blocks).toEqual(whole.blocks);
});

it("leaves blocks that are complete as they are", () => {
  const before = cut(text, UNCUT);
  const after = cut(`${text} More.`, before);
  expect(after.blocks.slice(0, -1)).toEqual(before.blocks.slice(0, -1));
  expect(after.blocks.at(-1)).toBe("End. More.");
});

it("shows a text that is replaced, and one that the lexer would change", () => {
  expect(cut("other", cut(text, UNCUT)).blocks.join("")).toBe("other");
  expect(cut("a\r\nb", UNCUT).blocks.join("")).toBe("a\r\nb");
});

it("lets a block use what a later one defines, also while that is written", () => {
  const source = "See [the page][1] and [Home][].\n\nNothing of that here.\n\n[1]: https://example.org/one\n[home]: https://example.org/home 'Home'\n";
  let grown = UNCUT;
  for (let end = 1; end <= source.length; end++) grown = cut(source.slice(0, end), grown);
  const [first = "", , second = ""] = grown.blocks;
  expect(complete(first, grown.definitions)).toBe(`[1]: https://example.org/one\n[home]: https://example.org/home 'Home'\n\n${first}`);
  expect(complete(second, grown.definitions)).toBe(second);
  expect([...grown.definitions]).toEqual([...cut(source, UNCUT).definitions]);
});

it("keeps what is defined as one thing as long as nothing changes, and the first of two", () => {
  const before = cut("[a]: https://example.org/a\n\n[a] is it.", UNCUT);
  const after = cut(`${before.text} More.\n\nAnd more.`, before);
  expect(after.definitions).toBe(before.definitions);
  const twice = cut(`${after.text}\n\n[A]: https://example.org/other\n\nEnd.`, after);
  expect(twice.definitions).toBe(before.definitions);
});
