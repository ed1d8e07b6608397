import { expect, it } from "vitest";
import { fileError, MAX_FILE_BYTES, MAX_FILES, promptText } from "./message-files";
import { emptyTurn } from "./turn";

const file = (size: number) => ({ name: "a.png", size });

it("accepts a file of 25 MiB and not a byte more", () => {
  expect(fileError(file(MAX_FILE_BYTES), [])).toBe("");
  expect(fileError(file(MAX_FILE_BYTES + 1), [])).toContain("26,214,401 bytes");
});

it("rejects empty files, too many files and too many bytes together", () => {
  expect(fileError(file(MAX_FILE_BYTES), [file(MAX_FILE_BYTES)])).toContain("all files of a message together");
  expect(fileError(file(1), Array.from({ length: MAX_FILES }, () => file(1)))).toContain("64 files");
  expect(fileError(file(0), [])).toContain("is empty");
});

it("removes the lines that stand for files", () => {
  const turn = { ...emptyTurn("r", "r", 0), text: "look\n[image: a.png]\n[file: b.txt]", media: [{ id: "1", filename: "a.png", content_type: "image/png", size: 1 }] };
  expect(promptText(turn)).toBe("look\n[file: b.txt]");
});

it("removes the line of a file whose name the server has changed", () => {
  const media = ["passwd.png", "a.png", "here.png"].map((filename) => ({ id: filename, filename, content_type: "image/png", size: 1 }));
  const text = "[file: mine]\nlook\n[image: ../../etc/passwd.png]\n[image: a.png]\n[image: \there.png]";
  expect(promptText({ ...emptyTurn("r", "r", 0), text, media })).toBe("[file: mine]\nlook");
});
