// What windows of one browser tell each other: which conversation was taken from one of them. Other browsers do not hear it.

const CHANNEL = "parlor.taken";

/** The windows that have the same conversation. */
export class Windows {
  private readonly channel = new BroadcastChannel(CHANNEL);

  /** `onTaken` is called when another window has lost this session to some window. */
  constructor(
    private readonly session: string,
    onTaken: () => void,
  ) {
    this.channel.onmessage = ({ data }) => data === session && onTaken();
  }

  /** Tells the others that this window has lost it. */
  lose(): void {
    this.channel.postMessage(this.session);
  }

  /** Hears and tells nothing more. */
  close(): void {
    this.channel.close();
  }
}
