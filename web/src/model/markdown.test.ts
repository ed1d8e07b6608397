import { expect, it } from "vitest";
import { type Cut, cut } from "./markdown";

const text = "# Title\n\nA paragraph that\ngoes on.\n\n- one\n- two\n\n```rust\nfn main() {}\n\nlet x = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nEnd.";

it("cuts a growing text into the same blocks as a whole one", () => {
  const whole = cut(text, { text: "", blocks: [] });
  let grown: Cut = { text: "", blocks: [] };
  for (let end = 1; end <= text.length; end++) grown = cut(text.slice(0, end), grown);
  expect(grown.blocks.join("")).toBe(text);
  expect(grown.blocks).toEqual(whole.blocks);
});

it("leaves blocks that are complete as they are", () => {
  const before = cut(text, { text: "", blocks: [] });
  const after = cut(`${text} More.`, before);
  expect(after.blocks.slice(0, -1)).toEqual(before.blocks.slice(0, -1));
  expect(after.blocks.at(-1)).toBe("End. More.");
});

it("shows a text that is replaced, and one that the lexer would change", () => {
  expect(cut("other", cut(text, { text: "", blocks: [] })).blocks.join("")).toBe("other");
  expect(cut("a\r\nb", { text: "", blocks: [] }).blocks.join("")).toBe("a\r\nb");
});
