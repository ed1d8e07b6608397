// Numbers, times and names as people read them.
import { RUN_CANCELLED } from "../protocol/frames";
import type { ProcessLine, SessionLine } from "../protocol/http";
import type { Failure, Turn } from "./turn";

/** The largest file that can be sent. */
export const MAX_FILE_BYTES = 25 * 1024 * 1024;

/** All files of a message together: as base64 they must fit into a frame of 64 MiB. */
export const MAX_FILES_BYTES = 45 * 1024 * 1024;

/** How many files a message can have. */
export const MAX_FILES = 64;

/** So many names are told in a sentence; of the others, how many there are. */
export const MAX_NAMED = 8;

/** Such as `8 ms`, `1.2 s`, `3 min 20 s`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Such as `12 KB`. */
export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${Math.round(count / 1024)} KB`;
  return `${(count / 1024 / 1024).toFixed(1)} MB`;
}

/** Such as `1,234` or `1.2 M`. */
export function count(value: number): string {
  if (value >= 1_000_000) return `${(value / 1_000_000).toFixed(1)} M`;
  if (value >= 100_000) return `${Math.round(value / 1000)} k`;
  return value.toLocaleString("en-GB");
}

/** Such as `$0.012`. */
export function money(micros: number): string {
  const dollars = micros / 1_000_000;
  return `$${dollars.toFixed(dollars > 0 && dollars < 1 ? 3 : 2)}`;
}

/** Such as `just now`, `5 min ago`, `14 Nov`. */
export function ago(then: number, now: number): string {
  const seconds = Math.max(0, (now - then) / 1000);
  if (seconds < 45) return "just now";
  if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h ago`;
  if (seconds < 7 * 86_400) return `${Math.round(seconds / 86_400)} d ago`;
  return new Date(then).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
}

/** What to call a session. */
export function sessionName(line: Pick<SessionLine, "id" | "title" | "preview">): string {
  return line.title.trim() || line.preview.trim() || line.id;
}

/** What happened last in a session; nothing if nobody knows. */
export function lastEventWords({ last_event: event }: Pick<SessionLine, "last_event">): string {
  // What somebody stopped did as it was told.
  return event?.error_code === RUN_CANCELLED ? "run stopped" : (event?.event_type.replace(".", " ") ?? "");
}

/** What to call a process. */
export function processName(line: ProcessLine): string {
  return line.command.join(" ") || line.name || line.id;
}

/** What a failure means for the person who reads it. */
export function failureWords({ code, message }: Failure): string {
  switch (code) {
    case "RUN_INTERRUPTED":
      return "The server was interrupted in the middle of this answer. What it had done so far may have happened.";
    case "RUN_IN_PROGRESS":
      return "Too many messages are waiting already. Try again when some of them are answered.";
    case "SESSION_IN_USE":
      return "Another program is working in this session. You can watch it here, and write when it has left.";
    case "AGENT_NOT_FOUND":
      return `${message || "There is no such agent"}. Choose another one below.`;
    case "INTERNAL_ERROR":
      return `The server could not write this down: ${message}`;
    default:
      return message || "It failed and did not say why.";
  }
}

/** Why a session is in use and cannot be deleted, and what to do about it. */
export function deletionFlaw(line: Pick<SessionLine, "here" | "running">): string {
  if (line.here === false) return "Another program is working in this session. Delete it when that program has left.";
  return line.running === false ? "This session is in use. Try again in a moment." : "It is still running. Open it and stop it with Esc, then delete it.";
}

/** What a turn is doing right now, in a few words. */
export function activity(turn: Turn): string {
  if (turn.status === "pending") return "Sending";
  if (turn.status === "queued") return "Waiting for the run before it";
  const step = turn.work.steps.findLast(({ status }) => status === "running");
  return step?.headline || step?.title || "Working";
}

/** What the tour says of the run that it has asked for. */
export function tourWords(turn: Turn | undefined): string {
  switch (turn?.status) {
    case undefined:
    case "pending":
      return "It is on its way to the server.";
    case "queued":
      return "Another run is before it. It begins when that one has ended; Esc stops that one.";
    case "running":
      return "The agent is at work. Esc stops it.";
    case "completed":
      return "There is the answer. What was done for it is folded into the line above it.";
    case "stopped":
      return "It was stopped. What was done until then is folded into the line below the agent’s name.";
    case "failed":
      return turn.runId ? "It failed, and says why. What was done until then is folded into the line below the agent’s name." : "It was not taken, and says why. Nothing was done.";
  }
}

/** What was done in a turn, once it is over. */
export function workSummary(turn: Turn): string {
  const tools = turn.work.steps.reduce((sum, step) => sum + step.tools.length, 0);
  const helpers = turn.work.steps.filter((step) => step.work).length;
  const time = turn.durationMs === null ? "" : ` for ${duration(turn.durationMs)}`;
  const parts = [`Worked${time}`];
  if (tools) parts.push(tools === 1 ? "1 tool" : `${tools} tools`);
  if (helpers) parts.push(helpers === 1 ? "1 subagent" : `${helpers} subagents`);
  return parts.join(" · ");
}

/** Some names, such as `“a.txt”, “b.txt” and 3 more`. */
export function someNames(names: readonly string[]): string {
  const quoted = names.slice(0, MAX_NAMED).map((name) => `“${name}”`).join(", ");
  return names.length > MAX_NAMED ? `${quoted} and ${names.length - MAX_NAMED} more` : quoted;
}

/** Why a file cannot be sent, or nothing. */
export function fileFlaw(file: { name: string; size: number }, others: readonly { size: number }[]): string {
  if (file.size > MAX_FILE_BYTES) return `“${file.name}” has ${file.size.toLocaleString("en-GB")} bytes. A file can have 25 MB at most (26,214,400 bytes).`;
  if (file.size === 0) return `“${file.name}” is empty.`;
  if (others.length >= MAX_FILES) return `A message can have ${MAX_FILES} files at most.`;
  const together = others.reduce((sum, other) => sum + other.size, file.size);
  return together > MAX_FILES_BYTES ? `“${file.name}” is too much for one message: all files together can have 45 MB.` : "";
}

/** What was asked, without the lines that stand for its files: those are shown as themselves. */
export function askedText(turn: Turn): string {
  const lines = turn.text.split("\n");
  const takeLine = (end: string): boolean => {
    const place = lines.findLastIndex((line) => line.endsWith(end) && /^\[(image|audio|video|file): /.test(line));
    return place >= 0 && lines.splice(place, 1).length > 0;
  };
  // A line has the name that was sent, of which the server may keep a tidier one: such files have the last lines that are left.
  const renamed = turn.media.filter(({ filename }) => !takeLine(`: ${filename}]`));
  for (const _ of renamed) takeLine("]");
  return lines.join("\n").trim();
}

/** About how high a turn will be on the screen, before it was measured. */
export function estimateHeight(turn: Turn): number {
  const lines = (text: string): number => Math.ceil(text.length / 80) + (text.match(/\n/g)?.length ?? 0);
  const answer = turn.parts.reduce((sum, part) => sum + (part.kind === "text" ? 24 + lines(part.text) * 26 : 120), 0);
  return 132 + lines(turn.text) * 24 + answer + (turn.media.length ? 96 : 0) + (turn.failure ? 64 : 0);
}
