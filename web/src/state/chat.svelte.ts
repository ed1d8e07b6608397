// The conversation on the chat screen: its socket, the frames received over it, and the messages not acknowledged yet.
import { activeTurn, addPending, applyFrames, type Conversation, emptyConversation, markStale, prependPage, recordOutcome, removeTurn } from "../model/conversation";
import { failureText, outcomeText, questionAnnouncement } from "../model/texts";
import { pendingQuestion, type QuestionPart, type Turn } from "../model/turn";
import { acknowledgedKey, type AgentName, type Frame, isEvent, type Message, messageFrame, RUN_CANCELLED, stopFrame } from "../protocol/frames";
import { loadEvents, NotFoundError, RefusedError, UnauthorizedError, UnreachableError } from "../protocol/http";
import { ReconnectingSocket, type SocketState } from "../protocol/reconnecting-socket";
import { announce } from "./announce.svelte";
import { type Draft, draftOf } from "./drafts.svelte";
import { isOutboxFull, loadOutbox, saveOutbox } from "./outbox";
import { Answers } from "./questions.svelte";
import { TabSync } from "./tab-sync";

/** Frames are applied together, at the latest after this time: a hidden page gets no animation frames. */
const MAX_FLUSH_DELAY_MS = 250;

/** How many messages of a session may be unacknowledged; beyond that the user has to wait. */
export const MAX_UNACKNOWLEDGED = 64;

/** The delay before the first page of events is requested again. */
const FIRST_PAGE_DELAY_MS = 1_000;

/** How many pages are loaded in a row until one has the beginning of a run and the runs of all unacknowledged messages. */
const MAX_PAGES_IN_A_ROW = 20;

/** Receives what concerns the page around the conversation. */
export interface ChatListener {
  /** The server requires a token. */
  onLocked(): void;
  /** The server rejected the session id as invalid. */
  onInvalidSession(session: string): void;
  /** A run has started or ended, or its question was asked or settled. */
  onRunChange(): void;
}

/** An open conversation. */
export class Chat {
  conversation: Conversation = $state.raw(emptyConversation());
  connection: SocketState = $state("connecting");
  /** Why the server refuses the connection. */
  connectionError = $state("");
  agents: AgentName[] = $state.raw([]);
  defaultAgent = $state("");
  /** The last error of the server that belongs to no message. */
  serverError = $state("");
  /** Another client has deleted the session. */
  isDeleted = $state(false);
  /** The session was open in another tab until this one opened it. Shown once, until the user sends a message. */
  wasTakenOver = $state(false);
  isLoading = $state(true);
  /** Whether the conversation is loaded up to its beginning. */
  isFullyLoaded = $state(false);
  active: Turn | undefined = $derived(activeTurn(this.conversation));
  /** The question that the active run waits for. */
  question: QuestionPart | undefined = $derived(this.active && pendingQuestion(this.active));
  /** Whether there is an active run and an open connection to stop it. */
  canStop: boolean = $derived(this.active !== undefined && this.connection === "open");
  /** Whether too many messages are unacknowledged to send another one. */
  isFull: boolean = $derived.by(() => this.unacknowledged.length >= MAX_UNACKNOWLEDGED || isOutboxFull());

  /** The message that the user is writing. */
  readonly draft: Draft;
  /** The user's answers to questions. */
  readonly answers: Answers;

  private cursor: number | null = null;
  private olderRequest: Promise<void> | null = null;
  private unappliedFrames: Frame[] = [];
  private animationFrame = 0;
  private timer = 0;
  private unacknowledged: readonly Message[] = $state.raw([]);
  private isClosed = false;
  private isTakeoverKnown = false;
  private readonly tabs: TabSync;
  private readonly socket: ReconnectingSocket;

  constructor(
    readonly session: string,
    isNew: boolean,
    private readonly listener: ChatListener,
  ) {
    this.draft = draftOf(session);
    this.answers = new Answers(session, {
      onSettled: (question, outcome) => (this.conversation = recordOutcome(this.conversation, question, outcome)),
      onLocked: () => listener.onLocked(),
    });
    this.unacknowledged = loadOutbox(session);
    this.tabs = new TabSync(session, () => this.onLostElsewhere());
    this.socket = new ReconnectingSocket(session, {
      lastEventId: () => this.conversation.lastEventId,
      onFrame: (frame) => this.enqueue(frame),
      onState: (state, text) => this.onConnection(state, text),
    });
    for (const message of this.unacknowledged) this.conversation = addPending(this.conversation, message, Date.now());
    void this.open(isNew);
  }

  /** Sends a message, and again after each reconnect until the server has acknowledged it. */
  send(message: Message): void {
    this.serverError = "";
    this.wasTakenOver = false;
    this.conversation = addPending(this.conversation, message, Date.now());
    this.setUnacknowledged([...this.unacknowledged, { ...message, after: this.conversation.lastEventId }]);
    if (!this.socket.send(messageFrame(message))) this.socket.reconnectNow();
  }

  /** Stops the active run. */
  stop(): void {
    if (this.active) this.socket.send(stopFrame(this.active.runId));
  }

  /** Takes the session back from another tab. */
  takeOver(): void {
    this.isTakeoverKnown = true;
    this.socket.open();
  }

  /** Closes the conversation if the session was deleted. */
  async checkDeleted(): Promise<void> {
    const isGone = await loadEvents(this.session, null).then(() => false, (error) => error instanceof NotFoundError);
    if (!isGone || this.isClosed) return;
    this.isDeleted = true;
    this.close();
  }

  /** Skips the delay before the next reconnect. */
  reconnectNow(): void {
    this.socket.reconnectNow();
  }

  /** Removes a message that never became a run. */
  removeTurn(id: string): void {
    this.conversation = removeTurn(this.conversation, id);
    this.setUnacknowledged(this.unacknowledged.filter(({ key }) => key !== id));
  }

  /** Loads an older page; overlapping calls share one request. */
  loadOlder(): Promise<void> {
    if (this.isFullyLoaded || this.isLoading) return Promise.resolve();
    this.olderRequest ??= this.loadPage().finally(() => (this.olderRequest = null));
    return this.olderRequest;
  }

  /** Disconnects; runs of the session go on. */
  close(): void {
    this.isClosed = true;
    cancelAnimationFrame(this.animationFrame);
    clearTimeout(this.timer);
    this.tabs.close();
    this.socket.close();
  }

  private async open(isNew: boolean): Promise<void> {
    if (isNew) this.isFullyLoaded = true;
    else if (!(await this.loadFirstPage())) return;
    this.isLoading = false;
    if (this.question) announce(questionAnnouncement(this.question.title));
    this.socket.open();
  }

  /** Requests the newest page until it arrives. Returns false if the conversation was closed or a token is required. */
  private async loadFirstPage(): Promise<boolean> {
    while (!this.isClosed) {
      try {
        await this.loadPage();
        return !this.isClosed;
      } catch (error) {
        if (error instanceof UnauthorizedError) {
          this.listener.onLocked();
          return false;
        }
        // The session does not exist yet, its id is invalid, or the server has no pages: then the socket sends everything.
        if (error instanceof NotFoundError || (error instanceof RefusedError && error.status === 400)) this.isFullyLoaded = true;
        if (this.isFullyLoaded) return !this.isClosed;
        if (!(error instanceof UnreachableError || error instanceof RefusedError)) throw error;
      }
      this.connection = "reconnecting";
      await new Promise((resolve) => setTimeout(resolve, FIRST_PAGE_DELAY_MS));
    }
    return false;
  }

  private async loadPage(): Promise<void> {
    for (let count = 0; count < MAX_PAGES_IN_A_ROW; count++) {
      const page = await loadEvents(this.session, this.cursor);
      const turnCount = this.conversation.turns.length;
      this.cursor = page.before;
      this.conversation = prependPage(this.conversation, page.events, page.before === null);
      this.isFullyLoaded = page.before === null;
      this.acknowledge(page.events);
      if (this.isFullyLoaded || (this.conversation.turns.length > turnCount && !this.mayBeOnOlderPage())) return;
    }
  }

  /** Whether the run of an unacknowledged message may be on an older page: if so, it must be found there and not sent again. */
  private mayBeOnOlderPage(): boolean {
    return this.unacknowledged.some(({ after }) => after !== undefined && after < this.conversation.oldestEventId);
  }

  private onConnection(state: SocketState, text: string): void {
    const before = this.connection;
    this.connection = state;
    this.connectionError = text;
    if (state === "open") {
      this.flush();
      this.conversation = markStale(this.conversation);
      for (const message of this.unacknowledged) this.socket.send(messageFrame(message));
      if (before !== "open") announce("Connected.");
    }
    if (state === "reconnecting" && before === "open") announce("The connection is lost. Reconnecting.");
    if (state !== "open" && state !== "connecting") this.wasTakenOver = false;
    if (state === "replaced") {
      this.tabs.sendLost();
      announce("This conversation is now open in another window.");
    }
    if (state === "locked") this.listener.onLocked();
    if (state === "invalid-session") this.listener.onInvalidSession(this.session);
  }

  /** Another tab has lost the session: if this tab has it now, the user is told once. */
  private onLostElsewhere(): void {
    if (this.isTakeoverKnown || (this.connection !== "open" && this.connection !== "connecting")) return;
    this.isTakeoverKnown = true;
    this.wasTakenOver = true;
  }

  private enqueue(frame: Frame): void {
    this.unappliedFrames.push(frame);
    if (this.unappliedFrames.length > 1) return;
    this.animationFrame = requestAnimationFrame(() => this.flush());
    this.timer = window.setTimeout(() => this.flush(), MAX_FLUSH_DELAY_MS);
  }

  private flush(): void {
    cancelAnimationFrame(this.animationFrame);
    clearTimeout(this.timer);
    const frames = this.unappliedFrames.filter((frame) => !frame.session_id || frame.session_id === this.session);
    this.unappliedFrames = [];
    if (!frames.length) return;
    this.conversation = applyFrames(this.conversation, frames);
    this.acknowledge(frames);
    for (const frame of frames) this.handleFrame(frame);
  }

  private handleFrame(frame: Frame): void {
    if (isEvent(frame)) {
      if (frame.replay) return;
      if (frame.event_type === "question.asked") announce(questionAnnouncement(frame.data.title ?? ""));
      if (frame.event_type === "question.answered") announce(outcomeText({ outcome: frame.data.answer ?? null, door: frame.data.by?.door ?? "", message: frame.data.message ?? "" }));
      if (["question.asked", "question.answered"].includes(frame.event_type)) this.listener.onRunChange();
      if (frame.parent_run_id) return;
      if (["run.started", "run.completed", "run.failed"].includes(frame.event_type)) this.listener.onRunChange();
      if (frame.event_type === "run.completed") announce("The answer is complete.");
      if (frame.event_type === "run.failed") {
        const { error_code: code = "", message = "" } = frame.data;
        announce(code === RUN_CANCELLED ? "Stopped." : failureText({ code, message, retryable: false }));
      }
      return;
    }
    const { payload } = frame;
    if (frame.type === "agent.list") {
      this.agents = payload.agents ?? [];
      this.defaultAgent = payload.default ?? "";
    }
    // `no_active_run`: the run ended before the stop arrived. The user has what they wanted.
    if (frame.type === "error" && !payload.key && payload.code !== "no_active_run") this.serverError = payload.message ?? "";
  }

  /** Removes the messages that these frames accept or refuse. */
  private acknowledge(frames: readonly Frame[]): void {
    const keys = new Set(frames.map(acknowledgedKey));
    if (!this.unacknowledged.some(({ key }) => keys.has(key))) return;
    this.setUnacknowledged(this.unacknowledged.filter(({ key }) => !keys.has(key)));
  }

  private setUnacknowledged(unacknowledged: readonly Message[]): void {
    saveOutbox(this.session, unacknowledged);
    this.unacknowledged = unacknowledged;
  }
}
