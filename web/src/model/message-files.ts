// The files of a message: their limits, and the lines in the message text that stand for them.
import type { Turn } from "./turn";

/** The largest file that the server accepts. */
export const MAX_FILE_BYTES = 25 * 1024 * 1024;

/** The files of one message together: as base64 they must fit into a frame of 64 MiB. */
export const MAX_FILES_BYTES = 45 * 1024 * 1024;

/** How many files one message can have. */
export const MAX_FILES = 64;

/** Why a file cannot be added to the other files of a message; empty if it can. */
export function fileError(file: { name: string; size: number }, others: readonly { size: number }[]): string {
  if (file.size > MAX_FILE_BYTES) return `“${file.name}” has ${file.size.toLocaleString("en-GB")} bytes. A file can have at most 25 MB (26,214,400 bytes).`;
  if (file.size === 0) return `“${file.name}” is empty.`;
  if (others.length >= MAX_FILES) return `A message can have at most ${MAX_FILES} files.`;
  const total = others.reduce((sum, other) => sum + other.size, file.size);
  return total > MAX_FILES_BYTES ? `“${file.name}” does not fit: all files of a message together can have at most 45 MB.` : "";
}

/** The user's message without the lines that stand for its files, such as `[image: a.png]`: the view shows the files themselves. */
export function promptText(turn: Turn): string {
  const lines = turn.text.split("\n");
  const removeFileLine = (end: string): boolean => {
    const index = lines.findLastIndex((line) => line.endsWith(end) && /^\[(image|audio|video|file): /.test(line));
    return index >= 0 && lines.splice(index, 1).length > 0;
  };
  // A line has the name that the client sent. The server may have stored a cleaned-up name; such files belong to the last remaining lines.
  const renamed = turn.media.filter(({ filename }) => !removeFileLine(`: ${filename}]`));
  for (const _ of renamed) removeFileLine("]");
  return lines.join("\n").trim();
}
