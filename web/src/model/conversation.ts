// A conversation as an immutable value: functions apply frames to it and return a new one. Knows no socket and no screen.
// The same event may arrive twice; its sequence number within the run tells that it was applied before.
import { type EventFrame, type Frame, isEvent, type Message, type QuestionOutcome, type TypedFrame } from "../protocol/frames";
import { applyDelta, applyEvent, settleQuestion } from "./apply-event";
import { copyTurn, emptyTurn, pendingQuestion, type Turn } from "./turn";

/** The loaded part of a session. */
export interface Conversation {
  turns: Turn[];
  title: string;
  /** The oldest loaded event. Older events come in pages over HTTP, not over the socket. */
  oldestEventId: string;
  /** The newest applied event of the log. */
  lastEventId: string;
  /** Frames of a run whose beginning is on an older page; they wait for that page. */
  heldFrames: Frame[];
}

/** A conversation without turns. */
export function emptyConversation(): Conversation {
  return { turns: [], title: "", oldestEventId: "", lastEventId: "", heldFrames: [] };
}

/** Adds a message that the server has not acknowledged yet. `now` is in milliseconds. */
export function addPending(conversation: Conversation, message: Message, now: number): Conversation {
  const turn: Turn = {
    ...emptyTurn(message.key, "", now),
    key: message.key,
    agent: message.agent_id ?? "",
    text: message.content,
    attachments: message.attachments ?? [],
    status: "pending",
  };
  return { ...conversation, turns: [...conversation.turns, turn] };
}

/** Removes a turn that never became a run, for example before sending it again. */
export function removeTurn(conversation: Conversation, id: string): Conversation {
  return { ...conversation, turns: conversation.turns.filter((turn) => turn.id !== id) };
}

/** Applies frames of the socket. */
export function applyFrames(conversation: Conversation, frames: readonly Frame[]): Conversation {
  const editor = new ConversationEditor(conversation);
  for (const frame of frames) {
    if (isEvent(frame)) editor.addEvent(frame, true);
    else editor.addTyped(frame);
  }
  return editor.done();
}

/** Puts an older page before the loaded turns. Frames of a run that begins on a still older page are held until that page comes. */
export function prependPage(conversation: Conversation, frames: readonly Frame[], isBeginning: boolean): Conversation {
  const all = [...frames, ...conversation.heldFrames];
  const firstStart = isBeginning ? 0 : all.findIndex((frame) => isEvent(frame) && frame.event_type === "run.started" && !frame.parent_run_id);
  const heldCount = firstStart < 0 ? all.length : firstStart;
  // The page may contain the run of a message that is still pending here.
  const editor = new ConversationEditor({ ...emptyConversation(), turns: conversation.turns.filter(({ status }) => status === "pending") });
  for (const frame of all.slice(heldCount)) {
    if (isEvent(frame)) editor.addEvent(frame, false);
    else editor.addTyped(frame);
  }
  const older = editor.done();
  // A run that is queued on the older page may have started on a newer one.
  const loadedRuns = new Set(conversation.turns.map(({ runId }) => runId));
  const added = older.turns.filter(({ runId }) => runId && !loadedRuns.has(runId));
  const addedIds = new Set(added.map(({ id }) => id));
  return {
    turns: [...added, ...conversation.turns.filter(({ id }) => !addedIds.has(id))],
    title: conversation.title || older.title,
    oldestEventId: frames.find(isEvent)?.event_id ?? conversation.oldestEventId,
    lastEventId: conversation.lastEventId || (all.findLast(isEvent)?.event_id ?? ""),
    heldFrames: all.slice(0, heldCount),
  };
}

/** Marks all growing texts as stale: after a reconnect the server sends them again from their beginning. */
export function markStale(conversation: Conversation): Conversation {
  const editor = new ConversationEditor(conversation);
  conversation.turns.forEach((turn, index) => {
    if (turn.status === "running") editor.markStale(index);
  });
  return editor.done();
}

/** Records the outcome of a question that the server has told in an HTTP response: a tab without a connection gets no event. */
export function recordOutcome(conversation: Conversation, question: string, outcome: QuestionOutcome): Conversation {
  const editor = new ConversationEditor(conversation);
  const index = conversation.turns.findLastIndex((turn) => pendingQuestion(turn)?.id === question);
  if (index >= 0) editor.settle(index, question, outcome);
  return editor.done();
}

/** The running turn, which the user can stop. */
export function activeTurn(conversation: Conversation): Turn | undefined {
  return conversation.turns.findLast((turn) => turn.status === "running");
}

/** Copies each turn before the first change, so that unchanged turns stay the same object and are not drawn again. */
class ConversationEditor {
  private readonly turns: Turn[];
  private readonly copied = new Set<Turn>();
  private title: string;
  private lastEventId: string;

  constructor(private readonly from: Conversation) {
    this.turns = from.turns.slice();
    this.title = from.title;
    this.lastEventId = from.lastEventId;
  }

  done(): Conversation {
    return { ...this.from, turns: this.turns, title: this.title, lastEventId: this.lastEventId };
  }

  addEvent(event: EventFrame, isLive: boolean): void {
    if (isLive && this.from.oldestEventId && event.event_id < this.from.oldestEventId) return;
    const key = event.data.input?.key ?? null;
    let index = this.find(event.run_id, event.parent_run_id);
    if (index < 0 && event.event_type === "run.started" && !event.parent_run_id) index = this.startTurn(event, key);
    // The server reports a refused message as a failed run that is not in the log, so `lastEventId` must not move.
    if (index < 0) return this.refuse(event, key);
    if (event.event_id > this.lastEventId) this.lastEventId = event.event_id;
    if ((this.turns[index]?.lastSequence.get(event.run_id) ?? 0) >= event.sequence) return;
    applyEvent(this.change(index), event);
  }

  addTyped({ type, payload }: TypedFrame): void {
    switch (type) {
      case "session.renamed":
        this.title = payload.title ?? "";
        return;
      case "run.queued":
        return this.addQueued(payload.run_id ?? "", payload.text ?? "", payload.key ?? null);
      case "run.unqueued":
        return this.removeQueued(new Set(payload.run_ids));
      case "error": {
        const index = this.turns.findIndex((turn) => turn.status === "pending" && turn.key === payload.key);
        if (index >= 0) this.fail(index, payload.code ?? "", payload.message ?? "");
        return;
      }
      case "media.create": {
        const index = this.turns.findLastIndex((turn) => turn.runId && turn.status !== "queued");
        if (index >= 0) {
          const turn = this.change(index);
          const { filename = "file", content_type: contentType = "", data = "", caption = "" } = payload;
          turn.parts.push({ kind: "file", id: `file-${turn.parts.length}`, filename, contentType, data, caption });
        }
        return;
      }
      default: {
        const index = this.find(payload.run_id ?? "", null);
        if (index >= 0) applyDelta(this.change(index), type, payload);
      }
    }
  }

  settle(index: number, question: string, outcome: QuestionOutcome): void {
    settleQuestion(this.change(index), { question_id: question, answer: outcome });
  }

  markStale(index: number): void {
    const turn = this.change(index);
    for (const part of turn.parts) if (part.kind === "text" && !part.isComplete) part.isStale = true;
    const mark = (work: Turn["work"]): void => {
      for (const step of work.steps) {
        if (step.status !== "running") continue;
        step.isStale = true;
        for (const tool of step.tools) tool.isStale = tool.status === "running";
        if (step.work) mark(step.work);
      }
    };
    mark(turn.work);
  }

  private find(runId: string, parent: string | null): number {
    if (!runId) return -1;
    return this.turns.findLastIndex((turn) => turn.lastSequence.has(runId) || (parent !== null && turn.lastSequence.has(parent)));
  }

  private startTurn(event: EventFrame, key: string | null): number {
    const waiting = this.turns.findIndex((turn) => isWaiting(turn) && (turn.runId === event.run_id || (key !== null && turn.key === key)));
    const existing = waiting < 0 ? undefined : this.turns.splice(waiting, 1)[0];
    const turn = existing ? copyTurn(existing) : emptyTurn(event.run_id, event.run_id, Date.parse(event.timestamp));
    turn.lastSequence.set(event.run_id, 0);
    this.copied.add(turn);
    const firstWaiting = this.turns.findIndex(isWaiting);
    const index = firstWaiting < 0 ? this.turns.length : firstWaiting;
    this.turns.splice(index, 0, turn);
    return index;
  }

  private refuse(event: EventFrame, key: string | null): void {
    if (event.event_type !== "run.failed" || key === null) return;
    const index = this.turns.findIndex((turn) => isWaiting(turn) && turn.key === key);
    if (index < 0) return;
    this.fail(index, event.data.error_code ?? "", event.data.message ?? "");
  }

  private fail(index: number, code: string, message: string): void {
    const turn = this.change(index);
    turn.status = "failed";
    turn.failure = { code, message, retryable: true };
  }

  private addQueued(runId: string, text: string, key: string | null): void {
    if (this.turns.some((turn) => turn.runId === runId)) return;
    const pending = this.turns.findIndex((turn) => turn.status === "pending" && turn.key === key);
    const turn = pending < 0 ? emptyTurn(runId, runId, Date.now()) : this.change(pending);
    turn.runId = runId;
    turn.status = "queued";
    if (pending < 0) this.turns.push({ ...turn, text, key });
  }

  private removeQueued(runIds: Set<string>): void {
    for (let index = this.turns.length - 1; index >= 0; index--) {
      const turn = this.turns[index];
      if (turn?.status === "queued" && runIds.has(turn.runId)) this.turns.splice(index, 1);
    }
  }

  private change(index: number): Turn {
    const turn = this.turns[index] as Turn;
    if (this.copied.has(turn)) return turn;
    const copy = copyTurn(turn);
    this.copied.add(copy);
    this.turns[index] = copy;
    return copy;
  }
}

function isWaiting(turn: Turn): boolean {
  return turn.status === "pending" || turn.status === "queued";
}
