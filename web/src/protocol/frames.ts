// The frames of the supr door as types: what docs/protocols/supr.md says, and no more of it than the page looks at.

/** Why a run failed that somebody stopped. */
export const RUN_CANCELLED = "RUN_CANCELLED";

/** What a run was asked, as `run.started` repeats it. */
export interface RunInput {
  message_id?: string;
  text?: string;
  media?: MediaRef[];
  key?: string | null;
}

/** A file that is kept by the server. */
export interface MediaRef {
  id: string;
  filename: string;
  content_type: string;
  size: number;
}

/** The members that `data` of an event may have; which of them are there depends on `event_type`. */
export interface EventData {
  title?: string;
  text?: string;
  /** How a text is to be read: `plain` is shown as it is, anything else is markdown. */
  format?: string;
  message?: string;
  message_id?: string;
  final_message_id?: string;
  resolved_agent_id?: string;
  model_used?: string;
  input?: RunInput;
  step_id?: string;
  kind?: string;
  headline?: string;
  summary?: string;
  progress?: number;
  status?: string;
  duration_ms?: number;
  tool_call_id?: string;
  tool_name?: string;
  display_name?: string;
  arg_preview?: string;
  result_preview?: string;
  scope?: string;
  code?: string;
  error_code?: string;
  reason_code?: string;
  retryable?: boolean;
  input_tokens?: number;
  output_tokens?: number;
  cache_read_tokens?: number;
  cost_micros?: number;
  model?: string;
}

/** A fact of the session's log. */
export interface EventFrame {
  event_id: string;
  event_type: string;
  timestamp: string;
  sequence: number;
  session_id: string;
  run_id: string;
  parent_run_id: string | null;
  agent_id: string;
  replay: boolean;
  data: EventData;
}

/** An agent that can be asked for. */
export interface AgentName {
  id: string;
  name: string;
}

/** The members that the `payload` of a typed frame may have. */
export interface TypedPayload {
  agents?: AgentName[];
  default?: string;
  code?: string;
  message?: string;
  key?: string | null;
  message_id?: string;
  step_id?: string;
  tool_call_id?: string;
  run_id?: string;
  run_ids?: string[];
  text?: string;
  format?: string;
  title?: string;
  type?: string;
  data?: string;
  filename?: string;
  content_type?: string;
  caption?: string;
}

/** What the server says beside events: errors, the agents, and texts while they are written. */
export interface TypedFrame {
  type: string;
  id?: string;
  session_id?: string;
  payload: TypedPayload;
}

/** Anything that comes from the server. */
export type Frame = EventFrame | TypedFrame;

/** A file on its way to the server. */
export interface Attachment {
  data: string;
  filename: string;
  content_type: string;
}

/** What a person said, with how it is to be answered. */
export interface Message {
  content: string;
  key: string;
  agent_id?: string;
  model?: string;
  reasoning?: string;
  attachments?: Attachment[];
  /** The last event that was known when it was said: its run can only be behind that. It is for the page alone. */
  after?: string;
}

/** Whether a frame is an event of the log. */
export function isEvent(frame: Frame): frame is EventFrame {
  return "event_type" in frame;
}

/** The key of the message that a frame tells to be taken or refused: it need not be sent again. */
export function settledKey(frame: Frame): string | null {
  if (isEvent(frame)) return frame.data.input?.key ?? null;
  return frame.type === "run.queued" || frame.type === "error" ? (frame.payload.key ?? null) : null;
}

/** Reads a frame, or nothing if it is none. */
export function parseFrame(text: string): Frame | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null) return null;
  const frame = value as Partial<EventFrame & TypedFrame>;
  if (typeof frame.event_type === "string" && typeof frame.event_id === "string" && typeof frame.run_id === "string") {
    return { ...(frame as EventFrame), data: frame.data ?? {} };
  }
  if (typeof frame.type === "string") return { ...(frame as TypedFrame), payload: frame.payload ?? {} };
  return null;
}

/** The frame that says a message. */
export function messageFrame(message: Message): string {
  const { content, attachments, after: _, ...rest } = message;
  const [first, ...others] = attachments ?? [];
  if (!first) return JSON.stringify({ type: "message.send", payload: { content, ...rest } });
  // The caption of a message counts only beside several files; that of a file always does.
  const captioned = content.trim() ? { ...first, caption: content } : first;
  return JSON.stringify({ type: "media.send", payload: { attachments: [captioned, ...others], ...rest } });
}

/** The frame that stops the active run. */
export function stopFrame(runId: string): string {
  return JSON.stringify({ type: "run.stop", payload: runId ? { run_id: runId } : {} });
}
