// The sockets of tests.

/** A socket that opens when it is told to. */
export class FakeSocket {
  static readonly CONNECTING = 0;
  static readonly OPEN = 1;
  static readonly CLOSED = 3;
  static made: FakeSocket[] = [];
  readyState = 0;
  /** The states in which it was closed. */
  readonly closedIn: number[] = [];
  readonly sent: (string | Uint8Array)[] = [];
  onopen = (): void => undefined;
  constructor() {
    FakeSocket.made.push(this);
  }
  send(data: string | Uint8Array): void {
    this.sent.push(data);
  }
  close(): void {
    this.closedIn.push(this.readyState);
    this.readyState = FakeSocket.CLOSED;
  }
}
