// A turn of a conversation: the user's message, the agent's answer, and the steps in between as a tree. Only types and
// constructors; `conversation.ts` and `apply-event.ts` fill them.
import type { Attachment, MediaRef, QuestionOutcome, ToolDetails } from "../protocol/frames";

/** The progress of a turn. `pending`: the server has not acknowledged the message. `queued`: it waits for another run. */
export type TurnStatus = "pending" | "queued" | "running" | "completed" | "failed" | "stopped";

/** The progress of a step or a tool call. */
export type WorkStatus = "running" | "completed" | "failed";

/** Why a turn failed. */
export interface Failure {
  code: string;
  message: string;
  retryable: boolean;
}

/** A text of the answer, or a message that a user added while the run was active. */
export interface TextPart {
  kind: "text";
  id: string;
  role: "assistant" | "user";
  text: string;
  /** Shown as it is, not as markdown. */
  isPlain: boolean;
  isComplete: boolean;
  /** The connection broke while the text was written: the next piece starts again from the beginning. */
  isStale: boolean;
}

/** A file in the answer; `data` is base64. */
export interface FilePart {
  kind: "file";
  id: string;
  filename: string;
  contentType: string;
  data: string;
  caption: string;
}

/** A question to the user: may the agent make this tool call? */
export interface QuestionPart {
  kind: "question";
  /** The id of the question. */
  id: string;
  /** What the agent wants to do. */
  title: string;
  /** Why the user is asked. */
  reason: string;
  /** The exact command, or the change of a file. */
  detail: string;
  /** Whether the server can remember the answer for the project. */
  canRemember: boolean;
  /** Null while the run waits for the answer. */
  outcome: QuestionOutcome | null;
  /** What the user told the agent with a refusal. */
  message: string;
  /** The door that the answer came through; empty if unknown. */
  door: string;
}

/** A piece of an answer. */
export type Part = TextPart | FilePart | QuestionPart;

/** A tool call of a step. */
export interface ToolCall {
  id: string;
  name: string;
  args: string;
  status: WorkStatus;
  /** The last progress message of the tool. */
  note: string;
  progress: number;
  /** The output received while the tool runs, at most `MAX_OUTPUT_CHARS`. */
  output: string;
  /** See `TextPart.isStale`. */
  isStale: boolean;
  result: string;
  /** What the result has beside the text. */
  details: ToolDetails | null;
  startedAt: number;
  durationMs: number | null;
}

/** A step of a run. */
export interface Step {
  id: string;
  kind: string;
  title: string;
  status: WorkStatus;
  headline: string;
  reasoning: string;
  /** See `TextPart.isStale`; here for `reasoning`. */
  isStale: boolean;
  summary: string;
  failure: string;
  tools: ToolCall[];
  /** The steps of a subagent, if this step runs one. */
  work: RunWork | null;
  startedAt: number;
  durationMs: number | null;
}

/** The steps of one run. */
export interface RunWork {
  runId: string;
  agent: string;
  steps: Step[];
  /** The answer, if this is the run of a subagent. */
  answer: string;
  startedAt: number;
  durationMs: number | null;
}

/** The tokens and the cost of a turn. */
export interface TurnUsage {
  inputTokens: number;
  outputTokens: number;
  costMicros: number;
}

/** One turn of a conversation. Times are milliseconds since 1970. */
export interface Turn {
  /** Stays the same from sending the message on, so that the view keeps the row. */
  id: string;
  /** Empty until the server has assigned a run. */
  runId: string;
  /** The key with which this page or another client sent the message. */
  key: string | null;
  agent: string;
  model: string;
  /** The user's message. */
  text: string;
  /** The message's files, as the server stores them. */
  media: MediaRef[];
  /** The message's files, as this page sends them; empty once the run has ended. */
  attachments: Attachment[];
  status: TurnStatus;
  failure: Failure | null;
  parts: Part[];
  work: RunWork;
  usage: TurnUsage | null;
  /** The sequence number of the last applied event, for the run of this turn and each of its subagents. */
  lastSequence: Map<string, number>;
  startedAt: number;
  durationMs: number | null;
}

/** Tools that change no files. */
const READING_TOOLS = ["read_file", "list_dir", "grep_files"];

/** Whether the run of a turn called a tool that can change files. */
export function mayChangeFiles({ work }: Pick<Turn, "work">): boolean {
  const changes = ({ tools, work: inner }: Step): boolean => tools.some(({ name }) => !READING_TOOLS.includes(name)) || Boolean(inner?.steps.some(changes));
  return work.steps.some(changes);
}

/** The question that the run of a turn waits for. */
export function pendingQuestion({ parts }: Pick<Turn, "parts">): QuestionPart | undefined {
  return parts.findLast((part): part is QuestionPart => part.kind === "question" && part.outcome === null);
}

/** A running turn without any content. */
export function emptyTurn(id: string, runId: string, startedAt: number): Turn {
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
    work: emptyWork(runId, "", startedAt),
    usage: null,
    lastSequence: new Map(),
    startedAt,
    durationMs: null,
  };
}

/** A run without steps. */
export function emptyWork(runId: string, agent: string, startedAt: number): RunWork {
  return { runId, agent, steps: [], answer: "", startedAt, durationMs: null };
}

/** Copies everything in a turn that events change. */
export function copyTurn(turn: Turn): Turn {
  return { ...turn, parts: turn.parts.map((part) => ({ ...part })), work: copyWork(turn.work), lastSequence: new Map(turn.lastSequence) };
}

/** Whether the turn has not ended yet. */
export function isOpen(turn: Turn): boolean {
  return turn.status === "pending" || turn.status === "queued" || turn.status === "running";
}

function copyWork(work: RunWork): RunWork {
  const steps = work.steps.map((step) => ({
    ...step,
    tools: step.tools.map((tool) => ({ ...tool })),
    work: step.work && copyWork(step.work),
  }));
  return { ...work, steps };
}
