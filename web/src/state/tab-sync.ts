// Tells the tabs of this browser that one of them lost its session to another tab. Other browsers are not reached.

const CHANNEL = "parlor.taken";

/** A channel between the tabs that show the same session. */
export class TabSync {
  private readonly channel = new BroadcastChannel(CHANNEL);

  /** Calls `onLost` when another tab has lost this session; the winner may be any tab or program. */
  constructor(
    private readonly session: string,
    onLost: () => void,
  ) {
    this.channel.onmessage = ({ data }) => data === session && onLost();
  }

  /** Tells the other tabs that this tab has lost the session. */
  sendLost(): void {
    this.channel.postMessage(this.session);
  }

  close(): void {
    this.channel.close();
  }
}
