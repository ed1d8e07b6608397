// A WebSocket for tests.

/** Opens only when the test sets `readyState` and calls `onopen`. */
export class FakeSocket {
  static readonly CONNECTING = 0;
  static readonly OPEN = 1;
  static readonly CLOSED = 3;
  static created: FakeSocket[] = [];
  readyState = 0;
  /** The value of `readyState` at each call of `close`. */
  readonly closedIn: number[] = [];
  readonly sent: (string | Uint8Array)[] = [];
  onopen = (): void => undefined;
  onmessage = (_event: { data: string | ArrayBuffer }): void => undefined;
  onclose = (): void => undefined;
  constructor(readonly url = "") {
    FakeSocket.created.push(this);
  }
  send(data: string | Uint8Array): void {
    this.sent.push(data);
  }
  close(): void {
    this.closedIn.push(this.readyState);
    this.readyState = FakeSocket.CLOSED;
  }
}
