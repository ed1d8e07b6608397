// A turn: what was asked, what was answered, and the work in between as a tree. Values only; `conversation.ts` makes them.
import type { Attachment, MediaRef } from "../protocol/frames";

/** How far a turn is. `pending` was not taken by the server yet, `queued` waits behind another run. */
export type TurnStatus = "pending" | "queued" | "running" | "completed" | "failed" | "stopped";

/** How far a step or a tool is. */
export type WorkStatus = "running" | "completed" | "failed";

/** Why something failed, in words. */
export interface Failure {
  code: string;
  message: string;
  retryable: boolean;
}

/** A text of the answer, or words of somebody that joined the run. */
export interface TextPart {
  kind: "text";
  id: string;
  role: "assistant" | "user";
  text: string;
  /** It is shown letter by letter, and not as markdown. */
  isPlain: boolean;
  done: boolean;
  /** The next piece is the beginning again, since the line was lost meanwhile. */
  stale: boolean;
}

/** A file that the answer brings. */
export interface FilePart {
  kind: "file";
  id: string;
  filename: string;
  contentType: string;
  data: string;
  caption: string;
}

/** Something that is shown as part of an answer. */
export type Part = TextPart | FilePart;

/** A call of a tool. */
export interface ToolCall {
  id: string;
  name: string;
  args: string;
  status: WorkStatus;
  note: string;
  progress: number;
  output: string;
  stale: boolean;
  result: string;
  startedAt: number;
  durationMs: number | null;
}

/** A step of a run; `work` is the run of a subagent whose step this is. */
export interface Step {
  id: string;
  kind: string;
  title: string;
  status: WorkStatus;
  headline: string;
  reasoning: string;
  stale: boolean;
  summary: string;
  failure: string;
  tools: ToolCall[];
  work: Work | null;
  startedAt: number;
  durationMs: number | null;
}

/** The steps of a run, and what a subagent said in it. */
export interface Work {
  runId: string;
  agent: string;
  steps: Step[];
  said: string;
  startedAt: number;
  durationMs: number | null;
}

/** What was spent on a turn. */
export interface Spent {
  input: number;
  output: number;
  costMicros: number;
}

/** One turn of a conversation. */
export interface Turn {
  /** Stays the same from the moment a person sends something until it is history. */
  id: string;
  runId: string;
  key: string | null;
  agent: string;
  model: string;
  text: string;
  media: MediaRef[];
  attachments: Attachment[];
  status: TurnStatus;
  failure: Failure | null;
  parts: Part[];
  work: Work;
  spent: Spent | null;
  /** The sequence that was reached in each run of this turn, those of subagents included. */
  reached: Map<string, number>;
  at: number;
  durationMs: number | null;
}

/** A turn of which nothing is known but when it began. */
export function emptyTurn(id: string, runId: string, at: number): Turn {
  return {
    id,
    runId,
    key: null,
    agent: "",
    model: "",
    text: "",
    media: [],
    attachments: [],
    status: "running",
    failure: null,
    parts: [],
    work: emptyWork(runId, "", at),
    spent: null,
    reached: new Map(),
    at,
    durationMs: null,
  };
}

/** A run without steps. */
export function emptyWork(runId: string, agent: string, at: number): Work {
  return { runId, agent, steps: [], said: "", startedAt: at, durationMs: null };
}

/** A copy that can be changed without changing the original. Texts are shared. */
export function copyTurn(turn: Turn): Turn {
  return { ...turn, parts: turn.parts.map((part) => ({ ...part })), work: copyWork(turn.work), reached: new Map(turn.reached) };
}

/** Whether the turn is not over. */
export function isOpen(turn: Turn): boolean {
  return turn.status === "pending" || turn.status === "queued" || turn.status === "running";
}

function copyWork(work: Work): Work {
  const steps = work.steps.map((step) => ({
    ...step,
    tools: step.tools.map((tool) => ({ ...tool })),
    work: step.work && copyWork(step.work),
  }));
  return { ...work, steps };
}
