// Splits a unified diff into lines with their kinds.

/** A line of a diff. `place` is a line such as `@@ -1,2 +1,3 @@`. */
export interface DiffLine {
  kind: "added" | "removed" | "place" | "same";
  text: string;
}

/** The lines of a unified diff that begins with its first `@@`. */
export function diffLines(diff: string): DiffLine[] {
  const lines = diff.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines.map((text) => ({ kind: kindOf(text), text }));
}

function kindOf(line: string): DiffLine["kind"] {
  if (line.startsWith("@@")) return "place";
  if (line.startsWith("+")) return "added";
  return line.startsWith("-") ? "removed" : "same";
}
