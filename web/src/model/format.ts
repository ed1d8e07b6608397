// Formats numbers, times and names for people.
import type { ProcessInfo, SessionSummary } from "../protocol/http";

/** `formatNames` lists this many names and counts the others. */
export const MAX_LISTED_NAMES = 8;

/** Such as `8 ms`, `1.2 s`, `3 min 20 s`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Such as `12 KB`. */
export function formatBytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${Math.round(count / 1024)} KB`;
  return `${(count / 1024 / 1024).toFixed(1)} MB`;
}

/** Such as `1,234` or `1.2 M`. */
export function formatCount(value: number): string {
  if (value >= 1_000_000) return `${(value / 1_000_000).toFixed(1)} M`;
  if (value >= 100_000) return `${Math.round(value / 1000)} k`;
  return value.toLocaleString("en-GB");
}

/** Such as `$0.012`, from millionths of a dollar. */
export function formatMoney(micros: number): string {
  const dollars = micros / 1_000_000;
  return `$${dollars.toFixed(dollars > 0 && dollars < 1 ? 3 : 2)}`;
}

/** Such as `just now`, `5 min ago`, `14 Nov`. */
export function formatAge(then: number, now: number): string {
  const seconds = Math.max(0, (now - then) / 1000);
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h ago`;
  if (seconds < 7 * 86_400) return `${Math.round(seconds / 86_400)} d ago`;
  return new Date(then).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

/** Such as `“a.txt”, “b.txt” and 3 more`. */
export function formatNames(names: readonly string[]): string {
  const quoted = names.slice(0, MAX_LISTED_NAMES).map((name) => `“${name}”`).join(", ");
  return names.length > MAX_LISTED_NAMES ? `${quoted} and ${names.length - MAX_LISTED_NAMES} more` : quoted;
}

/** The name of a session: its title, else its first message, else its id. */
export function sessionName(session: Pick<SessionSummary, "id" | "title" | "preview">): string {
  return session.title.trim() || session.preview.trim() || session.id;
}

/** The name of a process: its command line, if the server knows it. */
export function processName(process: ProcessInfo): string {
  return process.command.join(" ") || process.name || process.id;
}

/** A text without hidden characters: control characters, and those that change the order of others, are spelled like `\u{202e}`. */
export function visibleText(text: string): string {
  return text.replace(/[^\P{C}\n\t]|[\u2028\u2029\u115f\u1160\u3164\uffa0]/gu, (hidden) => `\\u{${hidden.codePointAt(0)?.toString(16)}}`);
}
