// The sockets of tests.

/** A socket that opens when it is told to. */
export class FakeSocket {
  static readonly CONNECTING = 0;
  static readonly OPEN = 1;
  static made: FakeSocket[] = [];
  readyState = 0;
  /** The states in which it was closed. */
  readonly closedIn: number[] = [];
  onopen = (): void => undefined;
  constructor() {
    FakeSocket.made.push(this);
  }
  close(): void {
    this.closedIn.push(this.readyState);
    this.readyState = 3;
  }
}
