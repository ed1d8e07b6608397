// A conversation as a value: frames go in, turns come out. Nothing here knows a socket or a screen.
// `receive` may be told the same event twice; the sequence within its run says that it is known.
import { type EventFrame, type Frame, isEvent, type Message, type TypedFrame } from "../protocol/frames";
import { applyEvent, applyText } from "./events";
import { copyTurn, emptyTurn, type Turn } from "./turn";

/** All that is known of a session. */
export interface Conversation {
  turns: Turn[];
  title: string;
  /** The oldest event that is loaded; what is older comes by pages, not over the socket. */
  oldest: string;
  /** The last event of the log that was dealt with. */
  last: string;
  /** What was told of a run whose beginning is on an older page. */
  held: Frame[];
}

/** A conversation in which nothing was said. */
export function emptyConversation(): Conversation {
  return { turns: [], title: "", oldest: "", last: "", held: [] };
}

/** Adds what a person says, before the server has heard of it. */
export function say(conversation: Conversation, message: Message, at: number): Conversation {
  const turn: Turn = {
    ...emptyTurn(message.key, "", at),
    key: message.key,
    agent: message.agent_id ?? "",
    text: message.content,
    attachments: message.attachments ?? [],
    status: "pending",
  };
  return { ...conversation, turns: [...conversation.turns, turn] };
}

/** Takes away a turn that never became a run, such as one that is tried again. */
export function withdraw(conversation: Conversation, id: string): Conversation {
  return { ...conversation, turns: conversation.turns.filter((turn) => turn.id !== id) };
}

/** Takes in what the socket brought. */
export function receive(conversation: Conversation, frames: readonly Frame[]): Conversation {
  const draft = new Draft(conversation);
  for (const frame of frames) {
    if (isEvent(frame)) draft.event(frame, true);
    else draft.typed(frame);
  }
  return draft.done();
}

/** Puts an older page before all that is there. A run that begins on a page still older is held back until that comes. */
export function prepend(conversation: Conversation, frames: readonly Frame[], isBeginning: boolean): Conversation {
  const whole = [...frames, ...conversation.held];
  const first = isBeginning ? 0 : whole.findIndex((frame) => isEvent(frame) && frame.event_type === "run.started" && !frame.parent_run_id);
  const begin = first < 0 ? whole.length : first;
  // What is still on its way here may be on the page already.
  const draft = new Draft({ ...emptyConversation(), turns: conversation.turns.filter(({ status }) => status === "pending") });
  for (const frame of whole.slice(begin)) {
    if (isEvent(frame)) draft.event(frame, false);
    else draft.typed(frame);
  }
  const older = draft.done();
  // What was queued on the older page may have begun on a newer one.
  const begun = new Set(conversation.turns.map(({ runId }) => runId));
  const found = older.turns.filter(({ runId }) => runId && !begun.has(runId));
  const known = new Set(found.map(({ id }) => id));
  return {
    turns: [...found, ...conversation.turns.filter(({ id }) => !known.has(id))],
    title: conversation.title || older.title,
    oldest: frames.find(isEvent)?.event_id ?? conversation.oldest,
    last: conversation.last || (whole.findLast(isEvent)?.event_id ?? ""),
    held: whole.slice(0, begin),
  };
}

/** Marks what is being written: after a break the server tells it from its beginning. */
export function interrupted(conversation: Conversation): Conversation {
  const draft = new Draft(conversation);
  conversation.turns.forEach((turn, index) => {
    if (turn.status === "running") draft.stale(index);
  });
  return draft.done();
}

/** The run that can be stopped. */
export function activeTurn(conversation: Conversation): Turn | undefined {
  return conversation.turns.findLast((turn) => turn.status === "running");
}

/** Copies what it changes, each turn once, so that what did not change stays the same value. */
class Draft {
  private readonly turns: Turn[];
  private readonly copied = new Set<Turn>();
  private title: string;
  private last: string;

  constructor(private readonly from: Conversation) {
    this.turns = from.turns.slice();
    this.title = from.title;
    this.last = from.last;
  }

  done(): Conversation {
    return { ...this.from, turns: this.turns, title: this.title, last: this.last };
  }

  event(event: EventFrame, isLive: boolean): void {
    if (isLive && this.from.oldest && event.event_id < this.from.oldest) return;
    const key = event.data.input?.key ?? null;
    let index = this.find(event.run_id, event.parent_run_id);
    if (index < 0 && event.event_type === "run.started" && !event.parent_run_id) index = this.begin(event, key);
    // What became no run is told as the end of one, and is not in the log: its id is not to be asked for again.
    if (index < 0) return this.refused(event, key);
    if (event.event_id > this.last) this.last = event.event_id;
    if ((this.turns[index]?.reached.get(event.run_id) ?? 0) >= event.sequence) return;
    applyEvent(this.change(index), event);
  }

  typed({ type, payload }: TypedFrame): void {
    switch (type) {
      case "session.renamed":
        this.title = payload.title ?? "";
        return;
      case "run.queued":
        return this.queued(payload.run_id ?? "", payload.text ?? "", payload.key ?? null);
      case "run.unqueued":
        return this.unqueued(new Set(payload.run_ids));
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
        if (index >= 0) applyText(this.change(index), type, payload);
      }
    }
  }

  stale(index: number): void {
    const turn = this.change(index);
    for (const part of turn.parts) if (part.kind === "text" && !part.done) part.stale = true;
    const mark = (work: Turn["work"]): void => {
      for (const step of work.steps) {
        if (step.status !== "running") continue;
        step.stale = true;
        for (const tool of step.tools) tool.stale = tool.status === "running";
        if (step.work) mark(step.work);
      }
    };
    mark(turn.work);
  }

  private find(runId: string, parent: string | null): number {
    if (!runId) return -1;
    return this.turns.findLastIndex((turn) => turn.reached.has(runId) || (parent !== null && turn.reached.has(parent)));
  }

  private begin(event: EventFrame, key: string | null): number {
    const at = Date.parse(event.timestamp);
    const waiting = this.turns.findIndex((turn) => isWaiting(turn) && (turn.runId === event.run_id || (key !== null && turn.key === key)));
    const known = waiting < 0 ? undefined : this.turns.splice(waiting, 1)[0];
    const turn = known ? copyTurn(known) : emptyTurn(event.run_id, event.run_id, at);
    turn.reached.set(event.run_id, 0);
    this.copied.add(turn);
    const behind = this.turns.findIndex(isWaiting);
    const place = behind < 0 ? this.turns.length : behind;
    this.turns.splice(place, 0, turn);
    return place;
  }

  private refused(event: EventFrame, key: string | null): void {
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

  private queued(runId: string, text: string, key: string | null): void {
    if (this.turns.some((turn) => turn.runId === runId)) return;
    const mine = this.turns.findIndex((turn) => turn.status === "pending" && turn.key === key);
    const turn = mine < 0 ? emptyTurn(runId, runId, Date.now()) : this.change(mine);
    turn.runId = runId;
    turn.status = "queued";
    if (mine < 0) this.turns.push({ ...turn, text, key });
  }

  private unqueued(runIds: Set<string>): void {
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
