// The socket of a process: bytes both ways, its size, and its end. It comes back by itself after a break, as long as the
// server still knows the process; then the server tells first what it has kept, so that the screen begins anew.
import { hindrance } from "./admission";
import { Locked, processes, token } from "./http";

/** So often a lost process is looked for, before somebody has to ask for it. */
export const MAX_ATTEMPTS = 6;

/** The wait before the first attempt; each further one doubles it. */
const FIRST_PAUSE = 250;

/** So many characters that were typed before the first connection is open are kept for it. */
export const MAX_EARLY = 4096;

/** How the connection to a process is. */
export type LinkState =
  | "connecting"
  | "open"
  /** It broke, and is tried again. */
  | "waiting"
  /** The server does not answer, and nothing more is tried. */
  | "lost"
  /** The server knows no such process any more. */
  | "gone"
  | "exited";

/** What is told of a process. */
export interface ProcessOwner {
  onOutput(bytes: Uint8Array): void;
  onExit(code: number | null): void;
  /** With `open` all that is known of its output comes again. `words` say why it is lost, if that is known. */
  onState(state: LinkState, words: string): void;
}

/** A connection to one process. */
export class ProcessLink {
  private socket: WebSocket | null = null;
  private isOver = false;
  private size = "";
  /** What was typed too early; nothing is kept once the process was reached. */
  private early: string | null = "";
  private attempts = 0;
  private timer = 0;

  constructor(
    private readonly id: string,
    private readonly owner: ProcessOwner,
  ) {
    owner.onState("connecting", "");
    void this.open();
  }

  /** Sends what was typed. After a break nothing is kept: nobody saw what it would do. */
  type(text: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(new TextEncoder().encode(text));
    else if (this.early !== null && this.early.length + text.length <= MAX_EARLY) this.early += text;
  }

  /** Tells the process how large its terminal is. */
  resize(cols: number, rows: number): void {
    this.size = JSON.stringify({ type: "resize", cols, rows });
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(this.size);
  }

  /** Looks for a process that was lost. */
  again(): void {
    this.attempts = 0;
    this.owner.onState("waiting", "");
    void this.open();
  }

  /** Looks away; the process goes on. */
  close(): void {
    this.isOver = true;
    clearTimeout(this.timer);
    // One that is about to open is closed when it has: before that, browsers complain.
    if (this.socket?.readyState !== WebSocket.CONNECTING) this.socket?.close(1000);
  }

  private async open(): Promise<void> {
    let secret: string;
    try {
      secret = (await token()).token;
    } catch (error) {
      return this.pause(error instanceof Locked ? "A token is needed." : "");
    }
    if (this.isOver) return;
    const address = `${location.origin.replace(/^http/, "ws")}/api/processes/${encodeURIComponent(this.id)}/ws`;
    const socket = new WebSocket(address, [`token.${secret}`]);
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    let isOpened = false;
    socket.onopen = () => {
      if (this.isOver) return socket.close(1000);
      isOpened = true;
      this.owner.onState("open", "");
      if (this.size) socket.send(this.size);
      if (this.early) this.type(this.early);
      this.early = null;
    };
    socket.onmessage = ({ data }) => {
      // One that opens and says nothing is no better than one that does not open.
      this.attempts = 0;
      if (data instanceof ArrayBuffer) return this.owner.onOutput(new Uint8Array(data));
      this.isOver = true;
      this.owner.onState("exited", "");
      this.owner.onExit(exitCode(String(data)));
    };
    socket.onclose = () => {
      if (!this.isOver) void (isOpened ? this.pause("") : this.explain(address, secret));
    };
  }

  /** Finds out why the socket was not let in: the process may be gone, or the server be full. */
  private async explain(address: string, secret: string): Promise<void> {
    const found = await hindrance(address, secret);
    if (found.kind === "barred") return this.pause(found.words);
    const isKnown = await processes().then((lines) => lines.some(({ id }) => id === this.id), () => true);
    if (!isKnown && !this.isOver) {
      this.isOver = true;
      return this.owner.onState("gone", "");
    }
    this.pause("");
  }

  private pause(words: string): void {
    if (this.isOver) return;
    if (this.attempts >= MAX_ATTEMPTS) return this.owner.onState("lost", words);
    this.owner.onState("waiting", "");
    this.timer = window.setTimeout(() => void this.open(), FIRST_PAUSE * 2 ** this.attempts);
    this.attempts += 1;
  }
}

function exitCode(text: string): number | null {
  try {
    return (JSON.parse(text) as { exit_code?: number | null }).exit_code ?? null;
  } catch {
    return null;
  }
}
