import { describe, expect, it } from "vitest";
import { diffLines } from "./diff-lines";

describe("a diff", () => {
  it("has lines of four kinds", () => {
    const kinds = diffLines("@@ -1,2 +1,2 @@\n one\n-two\n+2\n").map(({ kind }) => kind);
    expect(kinds).toEqual(["place", "same", "removed", "added"]);
  });

  it("keeps empty lines and the mark of a missing newline", () => {
    expect(diffLines("+\n\\ No newline at end of file\n").map(({ text }) => text)).toEqual(["+", "\\ No newline at end of file"]);
  });
});
