// Applies an event, or a piece of a growing text, to a turn. Changes the turn in place.
import { type EventData, type EventFrame, RUN_CANCELLED, type TypedPayload } from "../protocol/frames";
import { emptyWork, type QuestionPart, type RunWork, type Step, type TextPart, type ToolCall, type Turn } from "./turn";

/** The page keeps only the end of a tool's output, at most this many characters. */
export const MAX_OUTPUT_CHARS = 64 * 1024;

/** Applies an event of the turn's run, or of one of its subagents. */
export function applyEvent(turn: Turn, event: EventFrame): void {
  turn.lastSequence.set(event.run_id, event.sequence);
  const at = Date.parse(event.timestamp);
  // A subagent's questions are shown in the turn too, because its steps may be folded.
  if (event.event_type === "question.asked") return addQuestion(turn, event.data);
  if (event.event_type === "question.answered") return settleQuestion(turn, event.data);
  if (event.run_id === turn.runId || event.event_type === "run.started") {
    if (event.parent_run_id) return startSubagent(turn, event, at);
    return applyTurnEvent(turn, event, at);
  }
  const work = findWork(turn.work, event.run_id);
  if (work) applyWorkEvent(work, event, at);
}

/** Appends a piece of the answer, of reasoning or of tool output; `type` says of which. */
export function applyDelta(turn: Turn, type: string, payload: TypedPayload): void {
  const piece = payload.text ?? "";
  const work = findWork(turn.work, payload.run_id ?? "");
  if (type === "message.delta") {
    if (payload.run_id !== turn.runId) return;
    const part = textPart(turn, payload.message_id ?? "", "assistant", payload.format);
    if (!part.isComplete) append(part, "text", piece);
  } else if (type === "reasoning.delta") {
    const step = work?.steps.find(({ id }) => id === payload.step_id);
    if (step?.status === "running") append(step, "reasoning", piece);
  } else if (type === "tool.output") {
    const tool = work && findTool(work, payload.tool_call_id);
    if (!tool) return;
    append(tool, "output", piece);
    if (tool.output.length > MAX_OUTPUT_CHARS) tool.output = tool.output.slice(-MAX_OUTPUT_CHARS);
  }
}

function applyTurnEvent(turn: Turn, event: EventFrame, at: number): void {
  const { data } = event;
  switch (event.event_type) {
    case "run.started":
      turn.runId = event.run_id;
      turn.key = data.input?.key ?? turn.key;
      turn.status = "running";
      turn.agent = event.agent_id;
      turn.text = data.input?.text ?? turn.text;
      turn.media = data.input?.media ?? [];
      turn.startedAt = at;
      turn.work = emptyWork(event.run_id, event.agent_id, at);
      return;
    case "run.completed":
      turn.status = "completed";
      return endTurn(turn, data, at);
    case "run.failed":
      turn.status = data.error_code === RUN_CANCELLED ? "stopped" : "failed";
      turn.failure = { code: data.error_code ?? "", message: data.message ?? "", retryable: data.retryable ?? false };
      if (turn.status === "stopped") moveStopMessage(turn, data);
      return endTurn(turn, data, at);
    case "message.started":
      textPart(turn, data.message_id ?? "", "assistant", data.format);
      return;
    case "message.received":
      completePart(textPart(turn, data.message_id ?? "", "user"), data);
      return;
    case "message.completed":
      completePart(textPart(turn, data.message_id ?? "", "assistant", data.format), data);
      turn.agent = data.resolved_agent_id ?? turn.agent;
      turn.model = data.model_used ?? turn.model;
      return;
    case "usage.recorded": {
      const { inputTokens = 0, outputTokens = 0, costMicros = 0 } = turn.usage ?? {};
      turn.usage = {
        inputTokens: inputTokens + (data.input_tokens ?? 0),
        outputTokens: outputTokens + (data.output_tokens ?? 0),
        costMicros: costMicros + (data.cost_micros ?? 0),
      };
      turn.model = data.model ?? turn.model;
      return;
    }
    default:
      applyWorkEvent(turn.work, event, at);
  }
}

function applyWorkEvent(work: RunWork, { event_type: type, data }: EventFrame, at: number): void {
  if (type === "message.completed") work.answer = data.text ?? "";
  if (type === "run.completed" || type === "run.failed") work.durationMs = data.duration_ms ?? at - work.startedAt;
  if (type === "step.started") work.steps.push(newStep(data, at));
  const step = work.steps.find(({ id }) => id === data.step_id);
  if (!step) return;
  switch (type) {
    case "step.updated":
      step.headline = data.headline ?? "";
      return;
    case "reasoning.summary":
      step.reasoning = data.text ?? "";
      step.isStale = false;
      return;
    case "step.completed":
      step.status = "completed";
      step.summary = data.summary ?? "";
      step.durationMs = data.duration_ms ?? at - step.startedAt;
      return;
    case "step.failed":
      step.status = "failed";
      step.failure = data.message ?? "";
      step.durationMs = data.duration_ms ?? at - step.startedAt;
      return;
    case "tool.called":
      step.tools.push(newTool(data, at));
      return;
    case "tool.progress":
    case "tool.completed":
    case "tool.failed": {
      const tool = step.tools.find(({ id }) => id === data.tool_call_id);
      if (tool) applyToolEvent(tool, type, data, at);
    }
  }
}

function applyToolEvent(tool: ToolCall, type: string, data: EventData, at: number): void {
  if (type === "tool.progress") {
    tool.note = data.message ?? "";
    tool.progress = data.progress ?? 0;
    return;
  }
  tool.status = type === "tool.completed" ? "completed" : "failed";
  tool.result = data.result_preview ?? data.message ?? "";
  tool.details = data.details ?? null;
  tool.durationMs = data.duration_ms ?? at - tool.startedAt;
}

function startSubagent(turn: Turn, event: EventFrame, at: number): void {
  const parent = findWork(turn.work, event.parent_run_id ?? "");
  const step = parent?.steps.find(({ id }) => id === event.run_id);
  if (step) step.work = emptyWork(event.run_id, event.agent_id, at);
}

function endTurn(turn: Turn, data: EventData, at: number): void {
  turn.durationMs = data.duration_ms ?? at - turn.startedAt;
  turn.work.durationMs = turn.durationMs;
  turn.attachments = [];
  for (const part of turn.parts) {
    if (part.kind === "text") part.isComplete = true;
    if (part.kind === "question") part.outcome ??= "withdrawn";
  }
}

function addQuestion(turn: Turn, data: EventData): void {
  turn.parts.push({
    kind: "question",
    id: data.question_id ?? "",
    title: data.title ?? "",
    reason: data.reason ?? "",
    detail: data.detail ?? "",
    canRemember: data.options?.includes("always") ?? false,
    outcome: null,
    message: "",
    door: "",
  });
}

/** Records the outcome of a question of the turn. */
export function settleQuestion(turn: Turn, data: Pick<EventData, "question_id" | "answer" | "message" | "by">): void {
  const question = turn.parts.find((part): part is QuestionPart => part.kind === "question" && part.id === data.question_id);
  if (!question) return;
  question.outcome = data.answer ?? "withdrawn";
  question.message = data.message ?? "";
  question.door = data.by?.door ?? "";
}

/** The last message of a stopped run says why it stopped. Moves it from the answer to the failure. */
function moveStopMessage(turn: Turn, data: EventData): void {
  const index = turn.parts.findIndex((part) => part.id === data.final_message_id);
  const part = turn.parts[index];
  if (part?.kind !== "text" || !turn.failure) return;
  turn.failure.message = part.text;
  turn.parts.splice(index, 1);
}

function textPart(turn: Turn, id: string, role: TextPart["role"], format?: string): TextPart {
  const existing = turn.parts.find((part): part is TextPart => part.kind === "text" && part.id === id);
  const part: TextPart = existing ?? { kind: "text", id, role, text: "", isPlain: false, isComplete: false, isStale: false };
  if (!existing) turn.parts.push(part);
  if (format !== undefined) part.isPlain = format === "plain";
  return part;
}

function completePart(part: TextPart, data: EventData): void {
  part.text = data.text ?? "";
  part.isComplete = true;
}

function append<K extends string>(target: { isStale: boolean } & Record<K, string>, name: K, piece: string): void {
  const before: string = target.isStale ? "" : target[name];
  (target as Record<K, string>)[name] = before + piece;
  target.isStale = false;
}

function findWork(work: RunWork, runId: string): RunWork | null {
  if (work.runId === runId) return work;
  for (const step of work.steps) {
    const found = step.work && findWork(step.work, runId);
    if (found) return found;
  }
  return null;
}

function findTool(work: RunWork, id: string | undefined): ToolCall | undefined {
  return work.steps.flatMap((step) => step.tools).find((tool) => tool.id === id);
}

function newStep(data: EventData, at: number): Step {
  return {
    id: data.step_id ?? "",
    kind: data.kind ?? "",
    title: data.title ?? "",
    status: "running",
    headline: "",
    reasoning: "",
    isStale: false,
    summary: "",
    failure: "",
    tools: [],
    work: null,
    startedAt: at,
    durationMs: null,
  };
}

function newTool(data: EventData, at: number): ToolCall {
  return {
    id: data.tool_call_id ?? "",
    name: data.tool_name ?? "",
    args: data.arg_preview ?? "",
    status: "running",
    note: "",
    progress: 0,
    output: "",
    isStale: false,
    result: "",
    details: null,
    startedAt: at,
    durationMs: null,
  };
}
