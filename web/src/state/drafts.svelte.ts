// What is written and not yet sent, by session. Kept apart from the screens, which come and go. Its texts outlast a reload of
// this window; files do not.

/** A file that was chosen; `url` shows it if it is a picture. */
export interface Chosen {
  id: string;
  file: File;
  url: string;
}

/** So many sessions keep what was begun in them; beyond it, the one that was not opened for longest loses it. */
export const MAX_DRAFTS = 32;

/** So many letters outlast a reload, of the sessions that were opened last. */
export const MAX_KEPT_CHARS = 256 * 1024;

const KEPT = "parlor.drafts";

/** A message that is being written. */
export class Draft {
  text = $state("");
  files: Chosen[] = $state.raw([]);

  constructor(text = "") {
    this.text = text;
  }

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
    keepDrafts();
  }
}

/** In the order in which their sessions were opened. */
const drafts = new Map(kept().map(([session, text]) => [session, new Draft(text)]));

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

/** The names of the files that were chosen and not sent: they go with the page. */
export function chosenFiles(): string[] {
  return [...drafts.values()].flatMap(({ files }) => files.map(({ file }) => file.name));
}

/** Keeps the texts for when the page is loaded again. */
export function keepDrafts(): void {
  let room = MAX_KEPT_CHARS;
  const texts: [string, string][] = [];
  for (const [session, { text }] of [...drafts].reverse()) {
    if (!text || text.length > room) continue;
    room -= text.length;
    texts.unshift([session, text]);
  }
  try {
    if (texts.length) sessionStorage.setItem(KEPT, JSON.stringify(texts));
    else sessionStorage.removeItem(KEPT);
  } catch {
    // More than a browser keeps: only a reload would lose it.
  }
}

function kept(): [string, string][] {
  try {
    const read: unknown = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(read) ? read.filter((item): item is [string, string] => Array.isArray(item)) : [];
  } catch {
    return [];
  }
}
