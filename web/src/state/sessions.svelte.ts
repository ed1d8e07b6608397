// The list of sessions of all doors. It is refreshed every two seconds while the page is visible.
import { deleteSession, listSessions, renameSession, SESSIONS_PER_PAGE, type SessionSummary, UnauthorizedError } from "../protocol/http";
import { coalesce } from "./coalesce";

/** The time between two refreshes. */
export const REFRESH_INTERVAL_MS = 2_000;

/** The list shows at most this many sessions; the search finds the others. */
export const MAX_LISTED = 500;

/** The state behind the sessions screen and the list in the sidebar. */
export class Sessions {
  /** The sessions that match the query, in the order in which the screen shows them. */
  rows: SessionSummary[] = $state.raw([]);
  /** The most recently used sessions, independent of the query. */
  recent: SessionSummary[] = $state.raw([]);
  query = $state("");
  hasMore = $state(false);
  /** Whether the list was loaded at least once. */
  isLoaded = $state(false);
  /** Why the last refresh failed. */
  error = $state("");

  /** Set while the pointer or the focus is in the list: then its rows keep their order. */
  isOrderFrozen = false;

  /** Refreshes after an event that changes the list; overlapping calls share one refresh. */
  readonly refreshAfterEvent = coalesce(() => this.refresh());

  private pages = 1;
  private timer = 0;
  private requests = 0;

  constructor(private readonly onLocked: () => void) {}

  /** Refreshes now and at intervals; the returned function ends that. */
  startPolling(): () => void {
    void this.refresh();
    this.timer = window.setInterval(() => {
      if (!document.hidden) void this.refresh();
    }, REFRESH_INTERVAL_MS);
    return () => clearInterval(this.timer);
  }

  search(query: string): void {
    this.query = query;
    this.pages = 1;
    void this.refresh();
  }

  /** Adds a page to the list. */
  showMore(): void {
    this.pages += 1;
    void this.refresh();
  }

  /** Loads the list once. Of overlapping calls only the last one counts. */
  async refresh(): Promise<void> {
    const request = ++this.requests;
    try {
      const loaded: SessionSummary[] = [];
      let hasMore = true;
      for (let page = 0; page < this.pages && hasMore; page++) {
        // One more than a page has, to learn whether there are more.
        const batch = await listSessions(this.query, loaded.length, SESSIONS_PER_PAGE + 1);
        loaded.push(...batch.slice(0, SESSIONS_PER_PAGE));
        hasMore = batch.length > SESSIONS_PER_PAGE;
      }
      const rows = withoutDuplicates(loaded);
      const recent = this.query ? await listSessions("") : rows.slice(0, SESSIONS_PER_PAGE);
      if (request !== this.requests) return;
      this.rows = this.isOrderFrozen ? keepOrder(rows, this.rows) : rows;
      this.recent = recent;
      this.hasMore = hasMore && loaded.length < MAX_LISTED;
      this.isLoaded = true;
      this.error = "";
    } catch (error) {
      if (error instanceof UnauthorizedError) return this.onLocked();
      if (request === this.requests) this.error = error instanceof Error ? error.message : "The list of sessions could not be loaded.";
    }
  }

  async rename(id: string, title: string): Promise<void> {
    await renameSession(id, title);
    await this.refresh();
  }

  /** Deletes a session; calls `onDeleted` before the list is refreshed. */
  async delete(id: string, onDeleted: (id: string) => void): Promise<void> {
    await deleteSession(id);
    onDeleted(id);
    await this.refresh();
  }
}

/** Each session once: a session that moves down while the pages are loaded is on two of them. */
function withoutDuplicates(rows: readonly SessionSummary[]): SessionSummary[] {
  return [...new Map(rows.map((row) => [row.id, row])).values()];
}

/** Sorts rows as before; new rows come first. */
export function keepOrder(rows: readonly SessionSummary[], before: readonly SessionSummary[]): SessionSummary[] {
  const positions = new Map(before.map(({ id }, position) => [id, position]));
  return rows.toSorted((a, b) => (positions.get(a.id) ?? -1) - (positions.get(b.id) ?? -1));
}
