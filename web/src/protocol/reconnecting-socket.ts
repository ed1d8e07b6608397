// The WebSocket of one session, which reconnects after a failure or a rotated token. It asks the server for the events that it missed. When another
// window opens the session, it stays closed until `open` is called again. It does not interpret frames.
import { type ConnectError, connectErrorFor, findConnectError, webSocketBlockedText } from "./connect-error";
import { type Frame, parseFrame } from "./frames";
import { loadToken, RefusedError, UnauthorizedError, UnreachableError } from "./http";

/** The delay before the first reconnect; each further attempt doubles it. */
export const FIRST_DELAY_MS = 250;

/** The longest delay between two attempts. */
export const MAX_DELAY_MS = 5_000;

/** The delay while the server is full or its settings reject the page: neither changes quickly. */
export const REFUSED_DELAY_MS = 15_000;

/** After this many failures that the server does not explain, the page tells the user what may block WebSockets. */
const MAX_UNEXPLAINED_FAILURES = 3;

/** A socket that is not open after this time is closed and tried again. */
export const OPEN_TIMEOUT_MS = 15_000;

/** The time between two pings. The page sends them because a browser does not report that the network is gone. */
export const PING_INTERVAL_MS = 20_000;

/** If nothing arrives for this long, the connection counts as lost. */
export const SILENCE_TIMEOUT_MS = 45_000;

/** The close code that the server sends when the session is opened elsewhere. */
export const CLOSE_CODE_REPLACED = 4001;

/** The state of the connection. `refused` is retried slowly; `invalid-session` is not retried; `replaced` waits for `open`. */
export type SocketState = "connecting" | "open" | "reconnecting" | "refused" | "invalid-session" | "replaced" | "locked" | "closed";

/** Receives frames and state changes. */
export interface SocketListener {
  /** The last event that the listener has applied. The empty string asks for all events, null for none. */
  lastEventId(): string | null;
  /** Called for each frame, in order. */
  onFrame(frame: Frame): void;
  /** `text` gives the reason, where the state alone does not. */
  onState(state: SocketState, text: string): void;
}

/** A connection to one session that survives network failures. */
export class ReconnectingSocket {
  private socket: WebSocket | null = null;
  private attempts = 0;
  private timer = 0;
  private pingTimer = 0;
  private lastReceivedAt = 0;
  private isClosed = false;
  /** Grows with each attempt, so that answers to older attempts can be ignored. */
  private generation = 0;
  private readonly onOffline = (): void => void this.checkServer();
  private readonly onOnline = (): void => this.reconnectNow();

  constructor(
    private readonly session: string,
    private readonly listener: SocketListener,
  ) {
    addEventListener("offline", this.onOffline);
    addEventListener("online", this.onOnline);
  }

  /** Connects. Also takes the session back after another window opened it. */
  open(): void {
    this.isClosed = false;
    this.attempts = 0;
    void this.connect();
  }

  /** Skips the delay before the next attempt, if one is scheduled. */
  reconnectNow(): void {
    if (this.timer) this.open();
  }

  /** Sends a frame; returns false if the socket is not open. */
  send(text: string): boolean {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(text);
    return true;
  }

  /** Closes the connection and stops reconnecting. */
  close(): void {
    this.isClosed = true;
    removeEventListener("offline", this.onOffline);
    removeEventListener("online", this.onOnline);
    this.dropSocket();
    this.listener.onState("closed", "");
  }

  private dropSocket(): void {
    clearTimeout(this.timer);
    clearInterval(this.pingTimer);
    this.timer = 0;
    this.generation += 1;
    const old = this.socket;
    this.socket = null;
    // Browsers log a warning when a connecting socket is closed, so `onopen` closes it.
    if (old?.readyState !== WebSocket.CONNECTING) old?.close(1000);
  }

  private async connect(): Promise<void> {
    this.dropSocket();
    const generation = this.generation;
    // During reconnects the state stays `reconnecting` until the socket is open.
    if (!this.attempts) this.listener.onState("connecting", "");
    let token: string;
    try {
      token = (await loadToken()).token;
    } catch (error) {
      if (this.isClosed || generation !== this.generation) return;
      if (error instanceof UnauthorizedError) return this.listener.onState("locked", "");
      return this.scheduleReconnect(error instanceof RefusedError ? connectErrorFor(error.status, error.message) : { kind: "unreachable" });
    }
    if (this.isClosed || generation !== this.generation) return;
    const address = this.address();
    const socket = new WebSocket(address, [`token.${token}`]);
    this.socket = socket;
    let wasOpened = false;
    const timeout = setTimeout(() => socket.close(), OPEN_TIMEOUT_MS);
    socket.onopen = () => {
      clearTimeout(timeout);
      if (socket !== this.socket) return socket.close(1000);
      wasOpened = true;
      this.attempts = 0;
      this.lastReceivedAt = Date.now();
      this.pingTimer = window.setInterval(() => this.ping(socket), PING_INTERVAL_MS);
      this.listener.onState("open", "");
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      this.lastReceivedAt = Date.now();
      const frame = typeof data === "string" ? parseFrame(data) : null;
      if (frame) this.listener.onFrame(frame);
    };
    socket.onclose = ({ code }) => {
      clearTimeout(timeout);
      if (socket !== this.socket) return;
      this.dropSocket();
      if (code === CLOSE_CODE_REPLACED) this.listener.onState("replaced", "");
      else if (wasOpened) this.scheduleReconnect({ kind: "unreachable" });
      else void this.explainFailure(address, token);
    };
  }

  /** Finds out why a socket did not open, and reconnects accordingly. */
  private async explainFailure(address: string, token: string): Promise<void> {
    const generation = this.generation;
    const error = await findConnectError(address, token);
    if (!this.isClosed && generation === this.generation) this.scheduleReconnect(error);
  }

  /** Schedules the next attempt, or gives up where an attempt cannot succeed. */
  private scheduleReconnect(error: ConnectError): void {
    if (error.kind === "invalid-session") return this.listener.onState("invalid-session", error.text);
    // `connect` loads the token again, so a rotated token is no problem. If the new one fails too, the user has to enter one.
    if (error.kind === "unauthorized" && this.attempts >= MAX_UNEXPLAINED_FAILURES) return this.listener.onState("locked", "");
    const isUnexplained = error.kind === "none" && this.attempts >= MAX_UNEXPLAINED_FAILURES;
    const text = error.kind === "refused" ? error.text : isUnexplained ? webSocketBlockedText(location.origin) : "";
    const delay = text ? REFUSED_DELAY_MS : Math.min(FIRST_DELAY_MS * 2 ** this.attempts, MAX_DELAY_MS);
    this.attempts += 1;
    this.listener.onState(text ? "refused" : "reconnecting", text);
    this.timer = window.setTimeout(() => void this.connect(), delay);
  }

  /** Checks the server after the browser went offline: a server on this machine stays reachable, another one does not. */
  private async checkServer(): Promise<void> {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const generation = this.generation;
    const isGone = await loadToken().then(() => false, (error) => error instanceof UnreachableError);
    if (!isGone || generation !== this.generation) return;
    this.dropSocket();
    this.scheduleReconnect({ kind: "unreachable" });
  }

  private ping(socket: WebSocket): void {
    if (Date.now() - this.lastReceivedAt < SILENCE_TIMEOUT_MS) return socket.send('{"type":"ping"}');
    this.dropSocket();
    this.scheduleReconnect({ kind: "unreachable" });
  }

  private address(): string {
    const query = new URLSearchParams({ session_id: this.session, stream: "1" });
    const after = this.listener.lastEventId();
    if (after !== null) query.set("after", after);
    return `${location.origin.replace(/^http/, "ws")}/supr/ws?${query}`;
  }
}
