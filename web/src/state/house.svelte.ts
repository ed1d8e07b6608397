// The sessions of all doors, looked at again and again while somebody looks.
import { Locked, rename, remove, SESSIONS_AT_A_TIME, type SessionLine, sessions } from "../protocol/http";
import { oneAtATime } from "./again";

/** How often the list is asked for, in milliseconds. */
export const LOOK_INTERVAL = 2_000;

/** How many sessions the list shows at most; a search finds the others. */
export const MAX_LISTED = 500;

/** The list of sessions. */
export class House {
  /** What was looked for, in the order in which it is shown. */
  lines: SessionLine[] = $state.raw([]);
  /** The sessions that were used last, whatever is looked for. */
  recent: SessionLine[] = $state.raw([]);
  query = $state("");
  hasMore = $state(false);
  isKnown = $state(false);
  /** Why the list cannot be had. */
  trouble = $state("");

  /** While somebody points at the list or is in it, what is listed stays where it is. */
  isHeld = false;

  /** Looks because something has happened that the list tells of; one such look at a time. */
  readonly lookAgain = oneAtATime(() => this.look());

  private pages = 1;
  private timer = 0;
  private asked = 0;

  constructor(private readonly onLocked: () => void) {}

  /** Looks now and from now on. */
  watch(): () => void {
    void this.look();
    this.timer = window.setInterval(() => {
      if (!document.hidden) void this.look();
    }, LOOK_INTERVAL);
    return () => clearInterval(this.timer);
  }

  /** Looks for something else. */
  search(query: string): void {
    this.query = query;
    this.pages = 1;
    void this.look();
  }

  /** Shows more of the list. */
  more(): void {
    this.pages += 1;
    void this.look();
  }

  /** Looks once. */
  async look(): Promise<void> {
    const mine = ++this.asked;
    try {
      const lines: SessionLine[] = [];
      let hasMore = true;
      for (let page = 0; page < this.pages && hasMore; page++) {
        // One more than is shown: it tells whether there is more.
        const some = await sessions(this.query, lines.length, SESSIONS_AT_A_TIME + 1);
        lines.push(...some.slice(0, SESSIONS_AT_A_TIME));
        hasMore = some.length > SESSIONS_AT_A_TIME;
      }
      const recent = this.query ? await sessions("") : withoutRepeats(lines).slice(0, SESSIONS_AT_A_TIME);
      if (mine !== this.asked) return;
      const listed = withoutRepeats(lines);
      this.lines = this.isHeld ? inPlace(listed, this.lines) : listed;
      this.recent = recent;
      this.hasMore = hasMore && lines.length < MAX_LISTED;
      this.isKnown = true;
      this.trouble = "";
    } catch (error) {
      if (error instanceof Locked) return this.onLocked();
      if (mine === this.asked) this.trouble = error instanceof Error ? error.message : "The list cannot be had.";
    }
  }

  /** Gives a session another title. */
  async rename(id: string, title: string): Promise<void> {
    await rename(id, title);
    await this.look();
  }

  /** Deletes a session, and tells when it is gone. */
  async remove(id: string, onGone: (id: string) => void): Promise<void> {
    await remove(id);
    onGone(id);
    await this.look();
  }
}

/** Each session once: one that moves down while the pages are fetched is on two of them. */
function withoutRepeats(lines: readonly SessionLine[]): SessionLine[] {
  return [...new Map(lines.map((line) => [line.id, line])).values()];
}

/** The lines that were there before in their old order, behind those that are new. */
export function inPlace(lines: readonly SessionLine[], before: readonly SessionLine[]): SessionLine[] {
  const places = new Map(before.map(({ id }, place) => [id, place]));
  return lines.toSorted((a, b) => (places.get(a.id) ?? -1) - (places.get(b.id) ?? -1));
}
