// What is written and not yet sent, by session. Kept apart from the screens, which come and go; a reload forgets it.

/** A file that was chosen; `url` shows it if it is a picture. */
export interface Chosen {
  id: string;
  file: File;
  url: string;
}

/** So many sessions keep what was begun in them; beyond it, the one that was not opened for longest loses it. */
export const MAX_DRAFTS = 32;

/** A message that is being written. */
export class Draft {
  text = $state("");
  files: Chosen[] = $state.raw([]);

  /** Takes one more file. */
  add(chosen: Chosen): void {
    this.files = [...this.files, chosen];
  }

  /** Takes a file off again. */
  drop(id: string): void {
    for (const chosen of this.files) if (chosen.id === id && chosen.url) URL.revokeObjectURL(chosen.url);
    this.files = this.files.filter((chosen) => chosen.id !== id);
  }

  /** Begins anew. */
  clear(): void {
    this.text = "";
    for (const { id } of this.files) this.drop(id);
  }
}

/** In the order in which their sessions were opened. */
const drafts = new Map<string, Draft>();

/** What is being written in a session. */
export function draftOf(session: string): Draft {
  const draft = drafts.get(session) ?? new Draft();
  drafts.delete(session);
  drafts.set(session, draft);
  for (const [other, { text, files }] of drafts) if (other !== session && !text && !files.length) drafts.delete(other);
  for (const other of drafts.keys()) if (drafts.size > MAX_DRAFTS) dropDraft(other);
  return draft;
}

/** Forgets what was being written in a session. */
export function dropDraft(session: string): void {
  drafts.get(session)?.clear();
  drafts.delete(session);
}
