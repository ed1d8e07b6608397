// One session over any number of sockets. It comes back by itself after a break and asks for what it missed; once another
// window has taken the session it stays away until it is told to come back. What frames mean is not its business.
import { blocked, type Hindrance, hindrance, judge } from "./admission";
import { type Frame, parseFrame } from "./frames";
import { Locked, Refused, token, Unreachable } from "./http";

/** The wait before the first attempt to come back; each further one doubles it. */
export const FIRST_PAUSE = 250;

/** The longest wait between two attempts. */
export const LAST_PAUSE = 5_000;

/** The wait where nothing changes in a moment: the server is full, or its settings keep the page out. */
export const BARRED_PAUSE = 15_000;

/** So often a socket may fail without a reason that the server knows, before that is told. */
const UNEXPLAINED = 3;

/** Opening may take this long. */
export const OPEN_LIMIT = 15_000;

/** A ping is sent this often, since a browser does not tell when the network has gone. */
export const PING_INTERVAL = 20_000;

/** A server that says nothing for this long is taken for lost. */
export const SILENCE = 45_000;

/** The close code of a socket whose session was opened elsewhere. */
export const REPLACED = 4001;

/** How the line to the server is. `barred` is tried again, slowly; `misnamed` is not, since no session can be called that. */
export type LineState = "connecting" | "open" | "waiting" | "barred" | "misnamed" | "elsewhere" | "locked" | "closed";

/** What the owner of a line is told. */
export interface LineOwner {
  /** The last event that was dealt with; the empty text asks for all, nothing for none. */
  lastEvent(): string | null;
  /** Frames, in order. */
  onFrame(frame: Frame): void;
  /** `words` say why, where the state alone does not. */
  onState(state: LineState, words: string): void;
}

/** A line to one session. */
export class Line {
  private socket: WebSocket | null = null;
  private attempts = 0;
  private timer = 0;
  private pinger = 0;
  private heard = 0;
  private ended = false;
  /** Counts attempts for good: an answer that belongs to an older one is let go. */
  private generation = 0;
  private readonly onOffline = (): void => void this.probe();
  private readonly onOnline = (): void => this.hurry();

  constructor(
    private readonly session: string,
    private readonly owner: LineOwner,
  ) {
    addEventListener("offline", this.onOffline);
    addEventListener("online", this.onOnline);
  }

  /** Opens the line, or opens it again after it was taken by another window. */
  open(): void {
    this.ended = false;
    this.attempts = 0;
    void this.connect();
  }

  /** Tries again at once instead of waiting. */
  hurry(): void {
    if (this.timer) this.open();
  }

  /** Says something; false if the line is not open. */
  send(text: string): boolean {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(text);
    return true;
  }

  /** Leaves for good. */
  close(): void {
    this.ended = true;
    removeEventListener("offline", this.onOffline);
    removeEventListener("online", this.onOnline);
    this.drop();
    this.owner.onState("closed", "");
  }

  private drop(): void {
    clearTimeout(this.timer);
    clearInterval(this.pinger);
    this.timer = 0;
    this.generation += 1;
    const old = this.socket;
    this.socket = null;
    // One that is about to open is closed when it has: before that, browsers complain.
    if (old?.readyState !== WebSocket.CONNECTING) old?.close(1000);
  }

  private async connect(): Promise<void> {
    this.drop();
    const mine = this.generation;
    // Who comes back says so when it has come, and not with each attempt.
    if (!this.attempts) this.owner.onState("connecting", "");
    let secret: string;
    try {
      secret = (await token()).token;
    } catch (error) {
      if (this.ended || mine !== this.generation) return;
      if (error instanceof Locked) return this.owner.onState("locked", "");
      return this.stay(error instanceof Refused ? judge(error.status, error.message) : { kind: "away" });
    }
    if (this.ended || mine !== this.generation) return;
    const address = this.address();
    const socket = new WebSocket(address, [`token.${secret}`]);
    this.socket = socket;
    let isOpened = false;
    const limit = setTimeout(() => socket.close(), OPEN_LIMIT);
    socket.onopen = () => {
      clearTimeout(limit);
      if (socket !== this.socket) return socket.close(1000);
      isOpened = true;
      this.attempts = 0;
      this.heard = Date.now();
      this.pinger = window.setInterval(() => this.ping(socket), PING_INTERVAL);
      this.owner.onState("open", "");
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      this.heard = Date.now();
      const frame = typeof data === "string" ? parseFrame(data) : null;
      if (frame) this.owner.onFrame(frame);
    };
    socket.onclose = ({ code }) => {
      clearTimeout(limit);
      if (socket !== this.socket) return;
      this.drop();
      if (code === REPLACED) this.owner.onState("elsewhere", "");
      else if (isOpened) this.stay({ kind: "away" });
      else void this.explain(address, secret);
    };
  }

  /** Finds out why a socket was not let in. */
  private async explain(address: string, secret: string): Promise<void> {
    const mine = this.generation;
    const found = await hindrance(address, secret);
    if (!this.ended && mine === this.generation) this.stay(found);
  }

  /** Stays away for a while, or for good. */
  private stay(found: Hindrance): void {
    if (found.kind === "misnamed") return this.owner.onState("misnamed", found.words);
    // A token that was replaced a moment ago is asked for anew; one that holds no longer after that is not ours to have.
    if (found.kind === "locked" && this.attempts >= UNEXPLAINED) return this.owner.onState("locked", "");
    const words = found.kind === "barred" ? found.words : found.kind === "none" && this.attempts >= UNEXPLAINED ? blocked(location.origin) : "";
    const wait = words ? BARRED_PAUSE : Math.min(FIRST_PAUSE * 2 ** this.attempts, LAST_PAUSE);
    this.attempts += 1;
    this.owner.onState(words ? "barred" : "waiting", words);
    this.timer = window.setTimeout(() => void this.connect(), wait);
  }

  /** The network is said to be gone: that is true of a server elsewhere, and not of one on this machine. */
  private async probe(): Promise<void> {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const mine = this.generation;
    const isGone = await token().then(() => false, (error) => error instanceof Unreachable);
    if (!isGone || mine !== this.generation) return;
    this.drop();
    this.stay({ kind: "away" });
  }

  private ping(socket: WebSocket): void {
    if (Date.now() - this.heard < SILENCE) return socket.send('{"type":"ping"}');
    this.drop();
    this.stay({ kind: "away" });
  }

  private address(): string {
    const query = new URLSearchParams({ session_id: this.session, stream: "1" });
    const after = this.owner.lastEvent();
    if (after !== null) query.set("after", after);
    return `${location.origin.replace(/^http/, "ws")}/supr/ws?${query}`;
  }
}
