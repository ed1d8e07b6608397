// The conversation on the screen: a line to its session, what came over it, and what waits to be sent.
import { activeTurn, type Conversation, emptyConversation, interrupted, prepend, receive, say, withdraw } from "../model/conversation";
import { failureWords } from "../model/words";
import type { Turn } from "../model/turn";
import { type AgentName, type Frame, isEvent, type Message, messageFrame, RUN_CANCELLED, settledKey, stopFrame } from "../protocol/frames";
import { events, Locked, Missing, Refused, Unreachable } from "../protocol/http";
import { Line, type LineState } from "../protocol/socket";
import { announce } from "./announce.svelte";
import { type Draft, draftOf } from "./drafts.svelte";
import { isOutboxFull, keepOutbox, keptOutbox } from "./outbox";
import { Windows } from "./windows";

/** Frames are shown together, at the latest after this many milliseconds: a hidden page draws nothing by itself. */
const LATEST = 250;

/** So many messages may be on their way; who has more to say waits until some are taken. */
export const MAX_UNSETTLED = 64;

/** The wait before the first page is asked for again, in milliseconds. */
const FIRST_PAGE_PAUSE = 1_000;

/** How many pages are asked for in a row until one has the beginning of a run, and all that was taken of what waits here. */
const PAGES_IN_A_ROW = 20;

/** What a conversation cannot deal with by itself. */
export interface ChatOwner {
  /** A token is needed. */
  onLocked(): void;
  /** No session can be called that. */
  onMisnamed(session: string): void;
  /** A run has begun or come to its end just now. */
  onRun(): void;
}

/** A conversation that is open. */
export class Chat {
  conversation: Conversation = $state.raw(emptyConversation());
  line: LineState = $state("connecting");
  /** Why the line is not let in, in words. */
  hindrance = $state("");
  agents: AgentName[] = $state.raw([]);
  defaultAgent = $state("");
  /** What the server objected to that belongs to no message. */
  complaint = $state("");
  /** Somebody else has deleted it. */
  isDeleted = $state(false);
  /** It was open in another window until this one took it; told once, until something is said. */
  hasTaken = $state(false);
  isLoading = $state(true);
  /** Whether all that was said is here. */
  isWhole = $state(false);
  active: Turn | undefined = $derived(activeTurn(this.conversation));
  /** Whether there is a run, and a line over which it can be stopped. */
  canStop: boolean = $derived(this.active !== undefined && this.line === "open");
  /** Whether no more can be sent until some of it is taken. */
  isFull: boolean = $derived.by(() => this.unsettled.length >= MAX_UNSETTLED || isOutboxFull());

  /** What is being written. */
  readonly draft: Draft;

  private cursor: number | null = null;
  private older: Promise<void> | null = null;
  private waiting: Frame[] = [];
  private frame = 0;
  private timer = 0;
  private unsettled: readonly Message[] = $state.raw([]);
  private isClosed = false;
  private isTakingTold = false;
  private readonly windows: Windows;
  private readonly wire: Line;

  constructor(
    readonly session: string,
    isFresh: boolean,
    private readonly owner: ChatOwner,
  ) {
    this.draft = draftOf(session);
    this.unsettled = keptOutbox(session);
    this.windows = new Windows(session, () => this.onTaken());
    this.wire = new Line(session, {
      lastEvent: () => this.conversation.last,
      onFrame: (frame) => this.take(frame),
      onState: (state, words) => this.onLine(state, words),
    });
    for (const message of this.unsettled) this.conversation = say(this.conversation, message, Date.now());
    void this.open(isFresh);
  }

  /** Says something; it is sent until the server is seen to have it. */
  send(message: Message): void {
    this.complaint = "";
    this.hasTaken = false;
    this.conversation = say(this.conversation, message, Date.now());
    this.keep([...this.unsettled, { ...message, after: this.conversation.last }]);
    if (!this.wire.send(messageFrame(message))) this.wire.hurry();
  }

  /** Stops the active run. */
  stop(): void {
    if (this.active) this.wire.send(stopFrame(this.active.runId));
  }

  /** Takes the conversation back from another window. */
  useHere(): void {
    this.isTakingTold = true;
    this.wire.open();
  }

  /** Looks whether the session is still there; one that is not goes on nowhere. */
  async lookAfter(): Promise<void> {
    const isGone = await events(this.session, null).then(() => false, (error) => error instanceof Missing);
    if (!isGone || this.isClosed) return;
    this.isDeleted = true;
    this.close();
  }

  /** Tries to connect without waiting. */
  hurry(): void {
    this.wire.hurry();
  }

  /** Takes a message away that never became a run. */
  withdraw(id: string): void {
    this.conversation = withdraw(this.conversation, id);
    this.keep(this.unsettled.filter(({ key }) => key !== id));
  }

  /** Loads what was said before; one page at a time. */
  loadOlder(): Promise<void> {
    if (this.isWhole || this.isLoading) return Promise.resolve();
    this.older ??= this.page().finally(() => (this.older = null));
    return this.older;
  }

  /** Leaves the conversation; its runs go on. */
  close(): void {
    this.isClosed = true;
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.windows.close();
    this.wire.close();
  }

  private async open(isFresh: boolean): Promise<void> {
    if (isFresh) this.isWhole = true;
    else if (!(await this.firstPage())) return;
    this.isLoading = false;
    this.wire.open();
  }

  /** Asks for the newest page until it is there; false if there is no use in going on. */
  private async firstPage(): Promise<boolean> {
    while (!this.isClosed) {
      try {
        await this.page();
        return !this.isClosed;
      } catch (error) {
        if (error instanceof Locked) {
          this.owner.onLocked();
          return false;
        }
        // A session that nobody knows yet, a name that none can have, or a server without pages: the socket tells all there is.
        if (error instanceof Missing || (error instanceof Refused && error.status === 400)) this.isWhole = true;
        if (this.isWhole) return !this.isClosed;
        if (!(error instanceof Unreachable || error instanceof Refused)) throw error;
      }
      this.line = "waiting";
      await new Promise((resolve) => setTimeout(resolve, FIRST_PAGE_PAUSE));
    }
    return false;
  }

  private async page(): Promise<void> {
    for (let asked = 0; asked < PAGES_IN_A_ROW; asked++) {
      const page = await events(this.session, this.cursor);
      const before = this.conversation.turns.length;
      this.cursor = page.before;
      this.conversation = prepend(this.conversation, page.events, page.before === null);
      this.isWhole = page.before === null;
      this.settle(page.events);
      if (this.isWhole || (this.conversation.turns.length > before && !this.mayBeOlder())) return;
    }
  }

  /** Whether the run of something that waits may have begun on an older page: then it is found there, and not sent again. */
  private mayBeOlder(): boolean {
    return this.unsettled.some(({ after }) => after !== undefined && after < this.conversation.oldest);
  }

  private onLine(state: LineState, words: string): void {
    const before = this.line;
    this.line = state;
    this.hindrance = words;
    if (state === "open") {
      this.flush();
      this.conversation = interrupted(this.conversation);
      for (const message of this.unsettled) this.wire.send(messageFrame(message));
      if (before !== "open") announce("Connected.");
    }
    if (state === "waiting" && before === "open") announce("The connection is lost. Trying again.");
    if (state !== "open" && state !== "connecting") this.hasTaken = false;
    if (state === "elsewhere") {
      this.windows.lose();
      announce("This conversation was opened in another window.");
    }
    if (state === "locked") this.owner.onLocked();
    if (state === "misnamed") this.owner.onMisnamed(this.session);
  }

  /** Another window has lost the session. If it is not this one that has it, that is no news here. */
  private onTaken(): void {
    if (this.isTakingTold || (this.line !== "open" && this.line !== "connecting")) return;
    this.isTakingTold = true;
    this.hasTaken = true;
  }

  private take(frame: Frame): void {
    this.waiting.push(frame);
    if (this.waiting.length > 1) return;
    this.frame = requestAnimationFrame(() => this.flush());
    this.timer = window.setTimeout(() => this.flush(), LATEST);
  }

  private flush(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    const frames = this.waiting.filter((frame) => !frame.session_id || frame.session_id === this.session);
    this.waiting = [];
    if (!frames.length) return;
    this.conversation = receive(this.conversation, frames);
    this.settle(frames);
    for (const frame of frames) this.notice(frame);
  }

  private notice(frame: Frame): void {
    if (isEvent(frame)) {
      if (frame.replay || frame.parent_run_id) return;
      if (["run.started", "run.completed", "run.failed"].includes(frame.event_type)) this.owner.onRun();
      if (frame.event_type === "run.completed") announce("The answer is complete.");
      if (frame.event_type === "run.failed") {
        const { error_code: code = "", message = "" } = frame.data;
        announce(code === RUN_CANCELLED ? "Stopped." : failureWords({ code, message, retryable: false }));
      }
      return;
    }
    const { payload } = frame;
    if (frame.type === "agent.list") {
      this.agents = payload.agents ?? [];
      this.defaultAgent = payload.default ?? "";
    }
    // Nothing to stop is what was wanted: the run had ended meanwhile.
    if (frame.type === "error" && !payload.key && payload.code !== "no_active_run") this.complaint = payload.message ?? "";
  }

  /** Forgets what the server has taken or refused. */
  private settle(frames: readonly Frame[]): void {
    const keys = new Set(frames.map(settledKey));
    if (!this.unsettled.some(({ key }) => keys.has(key))) return;
    this.keep(this.unsettled.filter(({ key }) => !keys.has(key)));
  }

  private keep(unsettled: readonly Message[]): void {
    keepOutbox(this.session, unsettled);
    this.unsettled = unsettled;
  }
}
