// The frames of the supr door as types: the part of docs/protocols/supr.md that the page uses.

/** The error code of a run that a client stopped. */
export const RUN_CANCELLED = "RUN_CANCELLED";

/** The user's message that started a run, as `run.started` repeats it. */
export interface RunInput {
  message_id?: string;
  text?: string;
  media?: MediaRef[];
  key?: string | null;
}

/** A file that the server stores; `size` is in bytes. */
export interface MediaRef {
  id: string;
  filename: string;
  content_type: string;
  size: number;
}

/** How a question was settled: by an answer, because nobody answered in time, or because its run ended. */
export type QuestionOutcome = "once" | "always" | "deny" | "expired" | "withdrawn";

/** All members that `data` of an event can have; `event_type` decides which are present. */
export interface EventData {
  title?: string;
  text?: string;
  /** `plain` text is shown as it is; anything else is markdown. */
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
  details?: ToolDetails;
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
  question_id?: string;
  reason?: string;
  detail?: string;
  /** The answers that a question takes. */
  options?: string[];
  answer?: QuestionOutcome;
  /** The client that a question was answered through. */
  by?: { door: string; client?: string };
}

/** What a tool returned beside its text. Servers of tools write all of it, so it is shown as text only. */
export interface ToolDetails {
  structured_content?: unknown;
  images?: MediaRef[];
  resources?: { uri: string; name?: string; mime_type?: string }[];
  diffs?: { path: string; text: string }[];
}

/** An event of the session's log. */
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

/** An agent that the user can choose. */
export interface AgentName {
  id: string;
  name: string;
}

/** All members that the `payload` of a typed frame can have; `type` decides which are present. */
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

/** A frame that is not an event: errors, the list of agents, and pieces of text while the agent writes them. */
export interface TypedFrame {
  type: string;
  id?: string;
  session_id?: string;
  payload: TypedPayload;
}

/** Any frame that the server sends. */
export type Frame = EventFrame | TypedFrame;

/** A file that the user sends; `data` is base64. */
export interface Attachment {
  data: string;
  filename: string;
  content_type: string;
}

/** A message of the user, and which agent and model should answer it. */
export interface Message {
  content: string;
  key: string;
  agent_id?: string;
  model?: string;
  reasoning?: string;
  attachments?: Attachment[];
  /** The last event known when the user sent the message: the run of the message can only come after it. Not sent to the server. */
  after?: string;
}

/** Tells events of the log from typed frames. */
export function isEvent(frame: Frame): frame is EventFrame {
  return "event_type" in frame;
}

/** The key of the message that this frame accepts or refuses, if any. Such a message need not be sent again. */
export function acknowledgedKey(frame: Frame): string | null {
  if (isEvent(frame)) return frame.data.input?.key ?? null;
  return frame.type === "run.queued" || frame.type === "error" ? (frame.payload.key ?? null) : null;
}

/** Parses a frame; returns null if the text is not a frame. */
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

/** Encodes a message: `media.send` if it has files, else `message.send`. */
export function messageFrame(message: Message): string {
  const { content, attachments, after: _, ...rest } = message;
  const [first, ...others] = attachments ?? [];
  if (!first) return JSON.stringify({ type: "message.send", payload: { content, ...rest } });
  // The server reads the message's own caption only if there are several files; it always reads the caption of a file.
  const captioned = content.trim() ? { ...first, caption: content } : first;
  return JSON.stringify({ type: "media.send", payload: { attachments: [captioned, ...others], ...rest } });
}

/** Encodes a stop of the run; an empty id stops whatever run is active. */
export function stopFrame(runId: string): string {
  return JSON.stringify({ type: "run.stop", payload: runId ? { run_id: runId } : {} });
}
