// The sentences that the page shows about runs and sessions.
import { type QuestionOutcome, RUN_CANCELLED } from "../protocol/frames";
import type { ChangedFile, FileInfo, PolicyMode, SessionSummary, UndoResult } from "../protocol/http";
import { formatDuration, visibleText } from "./format";
import { type Failure, pendingQuestion, type QuestionPart, type Turn } from "./turn";

/** The modes of a session, from the narrowest to the widest, and what each means. */
export const MODES: Record<PolicyMode, { name: string; meaning: string }> = {
  "read-only": {
    name: "Read only",
    meaning: "The agent reads the project and changes nothing. Commands run in a sandbox, write private temporary files only, and read no secrets. Tools of other programs are asked about.",
  },
  workspace: {
    name: "Workspace",
    meaning: "The agent reads and writes the project. Commands run in a sandbox: they write nothing else, read no secrets, and reach only the hosts that a rule allows.",
  },
  full: {
    name: "Full",
    meaning: "The agent's commands can do everything that you can do on this machine. Only your rules hold.",
  },
};

/** The last event of a session, such as `run completed`; empty if the server does not know it. */
export function lastEventText({ last_event: event }: Pick<SessionSummary, "last_event">): string {
  // A stop is reported as a failed run, but it is not an error for the user.
  return event?.error_code === RUN_CANCELLED ? "run stopped" : (event?.event_type.replace(".", " ") ?? "");
}

/** What a session does now. */
export function sessionStateText({ running, queued, question }: Pick<SessionSummary, "running" | "queued" | "question">): string {
  const state = question ? "Asks a question" : running ? "Running" : "Idle";
  return running && queued ? `${state}, ${queued} queued` : state;
}

/** What a failure means for the user. */
export function failureText({ code, message }: Failure): string {
  switch (code) {
    case "RUN_INTERRUPTED":
      return "The server stopped in the middle of this run. Commands that had started may have taken effect.";
    case "RUN_IN_PROGRESS":
      return "Too many messages are queued. Try again when some of them are answered.";
    case "SESSION_IN_USE":
      return "Another program is working in this session. You can watch it here, and send messages after it has finished.";
    case "AGENT_NOT_FOUND":
      return `${message || "There is no such agent"}. Choose another agent below.`;
    case "INTERNAL_ERROR":
      return `The server could not save this message: ${message}`;
    default:
      return message || "The run failed without a reason.";
  }
}

/** Why the server refuses to delete a session that is in use, and what to do. */
export function deletionError(session: Pick<SessionSummary, "here" | "running">): string {
  if (session.here === false) return "Another program is working in this session. Delete the session after that program has finished.";
  return session.running === false ? "This session is in use. Try again in a moment." : "A run is active in this session. Open it and stop the run with Esc, then delete it.";
}

/** The current activity of an unfinished turn, in a few words. */
export function activityText(turn: Turn): string {
  if (turn.status === "pending") return "Sending";
  if (turn.status === "queued") return "Waiting for the previous run";
  if (pendingQuestion(turn)) return "Waiting for your answer";
  const step = turn.work.steps.findLast(({ status }) => status === "running");
  return step?.headline || step?.title || "Working";
}

/** What the tour says about the run that it started. */
export function tourText(turn: Turn | undefined): string {
  switch (turn?.status) {
    case undefined:
    case "pending":
      return "The page is sending the message to the server.";
    case "queued":
      return "Another run is active. The tour’s run starts when that one ends; Esc stops the active run.";
    case "running":
      return "The agent is working. Esc stops it.";
    case "completed":
      return "The answer is here. The line above the answer unfolds the steps of the run.";
    case "stopped":
      return "The run was stopped. The line below the agent’s name unfolds its steps up to then.";
    case "failed":
      return turn.runId ? "The run failed; the conversation shows the reason. The line below the agent’s name unfolds its steps up to then." : "The server did not accept the message; the conversation shows the reason. No run was started.";
  }
}

/** A summary of an ended turn, such as `Worked for 3 s · 2 tools`. */
export function workSummary(turn: Turn): string {
  const tools = turn.work.steps.reduce((sum, step) => sum + step.tools.length, 0);
  const subagents = turn.work.steps.filter((step) => step.work).length;
  const time = turn.durationMs === null ? "" : ` for ${formatDuration(turn.durationMs)}`;
  const parts = [`Worked${time}`];
  if (tools) parts.push(tools === 1 ? "1 tool" : `${tools} tools`);
  if (subagents) parts.push(subagents === 1 ? "1 subagent" : `${subagents} subagents`);
  return parts.join(" · ");
}

/** What an undo did, in one sentence. */
export function undoText({ restored, kept }: UndoResult): string {
  const files = (count: number): string => (count === 1 ? "1 file" : `${count} files`);
  if (restored === 0 && kept === 0) return "Nothing to do: every file is as before the run.";
  return kept === 0 ? `Put back ${files(restored)}.` : `Put back ${files(restored)}, and kept ${files(kept)}:`;
}

/** What a run did to a file, such as `created` or `changed, 644 → 755`. */
export function changeText({ change, before, after, shown }: ChangedFile): string {
  const describe = ({ kind, mode, target }: FileInfo): string => (kind === "link" ? `link to ${target}` : kind === "file" ? (mode ?? "") : `${kind} ${mode ?? ""}`.trim());
  const [from, to] = [describe(before), describe(after)];
  const what = change === "mode" ? "permissions" : change;
  const states = before.kind === "missing" || after.kind === "missing" || from === to ? "" : `, ${from} → ${to}`;
  return `${what}${states}${shown === "binary" ? ", not a text" : shown === "not_shown" ? ", not shown" : ""}`;
}

/** The answers that the page offers for a question, and the label of each. */
export const ANSWER_LABELS = { once: "Allow once", always: "Always here", deny: "Deny" } as const;

/** How a question was settled, such as `Allowed once, through chat.`. */
export function outcomeText({ outcome, door, message }: Pick<QuestionPart, "outcome" | "door" | "message">): string {
  // The page answers over HTTP, as other programs may.
  const through = door === "" ? "" : door === "http" ? ", through the page or the HTTP API" : `, through ${door}`;
  switch (outcome) {
    case "once":
      return `Allowed once${through}.`;
    case "always":
      return `Allowed, and always in this project${through}.`;
    case "deny":
      return `Denied${through}${message ? `: ${message}` : "."}`;
    case "expired":
      return "Expired: nobody answered in time, so the call was refused.";
    default:
      return "Withdrawn: the run ended before an answer.";
  }
}

/** What the user is told whose answer came after the question was settled. */
export function lateAnswerText(outcome: QuestionOutcome | null): string {
  const first = { once: "it was allowed once", always: "it was allowed, and always in this project", deny: "it was denied", expired: "nobody had answered in time", withdrawn: "the run had ended" };
  return `Your answer came too late and changed nothing${outcome ? `: ${first[outcome]}` : ""}.`;
}

/** The outcome in the server's refusal of a late answer, such as `question qst_1 was settled before: once`. */
export function outcomeOfRefusal(text: string): QuestionOutcome | null {
  return (text.match(/: (once|always|deny|expired|withdrawn)$/)?.[1] as QuestionOutcome | undefined) ?? null;
}

/** What screen readers say when a run asks a question. */
export function questionAnnouncement(title: string): string {
  return `The agent asks before it goes on: ${visibleText(title)}`;
}
