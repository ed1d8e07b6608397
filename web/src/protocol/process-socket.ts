// The WebSocket of one process: output in, keystrokes and the terminal's size out, and the exit code at the end. It reconnects
// while the server still knows the process, and asks for the output after the last byte that it has got.
import { findConnectError } from "./connect-error";
import { listProcesses, loadToken, UnauthorizedError } from "./http";

/** After this many failed attempts the user has to press a button. */
export const MAX_ATTEMPTS = 6;

/** The delay before the first reconnect; each further attempt doubles it. */
const FIRST_DELAY_MS = 250;

/** How many characters typed before the first connection are kept and sent once it is open. */
export const MAX_EARLY_CHARS = 4096;

/** The state of the connection to a process. */
export type ProcessSocketState =
  | "connecting"
  | "open"
  /** The connection broke; the next attempt is scheduled. */
  | "reconnecting"
  /** The server does not answer, and all attempts are used up. */
  | "lost"
  /** The server does not know the process any more. */
  | "gone"
  | "exited";

/** Receives the output and the state of a process. */
export interface ProcessListener {
  onOutput(bytes: Uint8Array): void;
  /**
   * The next output does not follow the previous one: the server no longer had the output in between ("gap"), or it starts again
   * with the oldest output that it has kept ("restart").
   */
  onJump(kind: "gap" | "restart"): void;
  /** `code` is null if a signal ended the process. */
  onExit(code: number | null): void;
  /** `text` gives the reason of `lost`, if known. */
  onState(state: ProcessSocketState, text: string): void;
}

/** A connection to one process; it starts to connect when it is created. */
export class ProcessSocket {
  private socket: WebSocket | null = null;
  private isOver = false;
  /** The last resize frame, which each new connection repeats. */
  private resizeFrame = "";
  /** What was typed before the first connection was open; null after that. */
  private earlyInput: string | null = "";
  /** How many bytes of output the process had written before the next one that arrives; null if the server has not told. */
  private offset: number | null = null;
  private attempts = 0;
  private timer = 0;

  constructor(
    private readonly id: string,
    private readonly listener: ProcessListener,
  ) {
    listener.onState("connecting", "");
    void this.open();
  }

  /** Sends keystrokes. During a reconnect they are dropped: the user cannot see their effect. */
  type(text: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(new TextEncoder().encode(text));
    else if (this.earlyInput !== null && this.earlyInput.length + text.length <= MAX_EARLY_CHARS) this.earlyInput += text;
  }

  /** Tells the process the size of its terminal. */
  resize(cols: number, rows: number): void {
    this.resizeFrame = JSON.stringify({ type: "resize", cols, rows });
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(this.resizeFrame);
  }

  /** Starts a new round of attempts after `lost`. */
  retry(): void {
    this.attempts = 0;
    this.listener.onState("reconnecting", "");
    void this.open();
  }

  /** Disconnects; the process goes on. */
  close(): void {
    this.isOver = true;
    clearTimeout(this.timer);
    // Browsers log a warning when a connecting socket is closed, so `onopen` closes it.
    if (this.socket?.readyState !== WebSocket.CONNECTING) this.socket?.close(1000);
  }

  private async open(): Promise<void> {
    let token: string;
    try {
      token = (await loadToken()).token;
    } catch (error) {
      return this.scheduleReconnect(error instanceof UnauthorizedError ? "The server requires a token." : "");
    }
    if (this.isOver) return;
    const address = `${location.origin.replace(/^http/, "ws")}/api/processes/${encodeURIComponent(this.id)}/ws?after=${this.offset ?? 0}`;
    const socket = new WebSocket(address, [`token.${token}`]);
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    let wasOpened = false;
    let isOffsetTold = false;
    socket.onopen = () => {
      if (this.isOver) return socket.close(1000);
      wasOpened = true;
      this.listener.onState("open", "");
      if (this.resizeFrame) socket.send(this.resizeFrame);
      if (this.earlyInput) this.type(this.earlyInput);
      this.earlyInput = null;
    };
    socket.onmessage = ({ data }) => {
      // Reset here and not in `onopen`: a socket that opens and closes without a message counts as a failed attempt.
      this.attempts = 0;
      if (data instanceof ArrayBuffer) {
        // An older parlor that shares the process knows no offsets, and sends all the output that it kept.
        if (!isOffsetTold) this.jumpTo(null);
        isOffsetTold = true;
        if (this.offset !== null) this.offset += data.byteLength;
        return this.listener.onOutput(new Uint8Array(data));
      }
      const message = parseMessage(String(data));
      if (message.type === "output") {
        isOffsetTold = true;
        return this.jumpTo(message.offset ?? null);
      }
      this.isOver = true;
      this.listener.onState("exited", "");
      this.listener.onExit(message.exit_code ?? null);
    };
    socket.onclose = () => {
      if (!this.isOver) void (wasOpened ? this.scheduleReconnect("") : this.explainFailure(address, token));
    };
  }

  /** The next output begins at `offset`; null if that is unknown. */
  private jumpTo(offset: number | null): void {
    const expected = this.offset;
    this.offset = offset;
    if (offset === null) return this.listener.onJump("restart");
    // Nothing is shown before the first output.
    if (expected !== null && offset !== expected) this.listener.onJump(offset > expected ? "gap" : "restart");
  }

  /** Finds out why the socket did not open: the process may be gone, or the server may be full. */
  private async explainFailure(address: string, token: string): Promise<void> {
    const error = await findConnectError(address, token);
    if (error.kind === "refused") return this.scheduleReconnect(error.text);
    const isListed = await listProcesses().then((list) => list.some(({ id }) => id === this.id), () => true);
    if (!isListed && !this.isOver) {
      this.isOver = true;
      return this.listener.onState("gone", "");
    }
    this.scheduleReconnect("");
  }

  private scheduleReconnect(reason: string): void {
    if (this.isOver) return;
    if (this.attempts >= MAX_ATTEMPTS) return this.listener.onState("lost", reason);
    this.listener.onState("reconnecting", "");
    this.timer = window.setTimeout(() => void this.open(), FIRST_DELAY_MS * 2 ** this.attempts);
    this.attempts += 1;
  }
}

/** A text message of the server: the offset of the next output, or the exit. */
interface ServerMessage {
  type?: string;
  offset?: number;
  exit_code?: number | null;
}

function parseMessage(text: string): ServerMessage {
  try {
    return JSON.parse(text) as ServerMessage;
  } catch {
    return {};
  }
}
