// The socket of a process: bytes both ways, its size, and its end.
import { token } from "./http";

/** What is told of a process. */
export interface ProcessOwner {
  onOutput(bytes: Uint8Array): void;
  onExit(code: number | null): void;
  /** The connection ended before the process did. */
  onLost(): void;
}

/** A connection to one process. */
export class ProcessLink {
  private socket: WebSocket | null = null;
  private isClosed = false;
  private hasExited = false;
  private size = "";

  constructor(
    private readonly id: string,
    private readonly owner: ProcessOwner,
  ) {
    void this.open();
  }

  /** Sends what was typed. */
  type(text: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(new TextEncoder().encode(text));
  }

  /** Tells the process how large its terminal is. */
  resize(cols: number, rows: number): void {
    this.size = JSON.stringify({ type: "resize", cols, rows });
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(this.size);
  }

  /** Looks away; the process goes on. */
  close(): void {
    this.isClosed = true;
    this.socket?.close(1000);
  }

  private async open(): Promise<void> {
    let secret: string;
    try {
      secret = (await token()).token;
    } catch {
      return this.owner.onLost();
    }
    if (this.isClosed) return;
    const address = `${location.origin.replace(/^http/, "ws")}/api/processes/${encodeURIComponent(this.id)}/ws`;
    const socket = new WebSocket(address, [`token.${secret}`]);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.size && socket.send(this.size);
    socket.onmessage = ({ data }) => {
      if (data instanceof ArrayBuffer) return this.owner.onOutput(new Uint8Array(data));
      this.hasExited = true;
      this.owner.onExit(exitCode(String(data)));
    };
    socket.onclose = () => {
      if (!this.isClosed && !this.hasExited) this.owner.onLost();
    };
    this.socket = socket;
  }
}

function exitCode(text: string): number | null {
  try {
    return (JSON.parse(text) as { exit_code?: number | null }).exit_code ?? null;
  } catch {
    return null;
  }
}
