// Unsent messages, by session. Kept outside of the screens, which are created again with each visit. Texts survive a reload of
// this tab; chosen files do not.

/** A file that the user chose for the next message. `url` is an object URL for the preview of an image, else empty. */
export interface ChosenFile {
  id: string;
  file: File;
  url: string;
}

/** How many sessions keep a draft. Beyond that, the draft of the session opened longest ago is deleted. */
export const MAX_DRAFTS = 32;

/** How many characters are stored for a reload; the sessions opened last come first. */
export const MAX_STORED_CHARS = 256 * 1024;

const STORAGE_KEY = "parlor.drafts";

/** The text and the files of an unsent message. */
export class Draft {
  text = $state("");
  files: ChosenFile[] = $state.raw([]);

  constructor(text = "") {
    this.text = text;
  }

  addFile(chosen: ChosenFile): void {
    this.files = [...this.files, chosen];
  }

  removeFile(id: string): void {
    for (const chosen of this.files) if (chosen.id === id && chosen.url) URL.revokeObjectURL(chosen.url);
    this.files = this.files.filter((chosen) => chosen.id !== id);
  }

  clear(): void {
    this.text = "";
    for (const { id } of this.files) this.removeFile(id);
    saveDrafts();
  }
}

/** Ordered by when their sessions were opened, the last one at the end. */
const drafts = new Map(loadDrafts().map(([session, text]) => [session, new Draft(text)]));

/** The draft of a session that is being opened. */
export function draftOf(session: string): Draft {
  const draft = drafts.get(session) ?? new Draft();
  drafts.delete(session);
  drafts.set(session, draft);
  for (const [other, { text, files }] of drafts) if (other !== session && !text && !files.length) drafts.delete(other);
  for (const other of drafts.keys()) if (drafts.size > MAX_DRAFTS) deleteDraft(other);
  return draft;
}

export function deleteDraft(session: string): void {
  drafts.get(session)?.clear();
  drafts.delete(session);
}

/** The names of all chosen files; a reload would lose them. */
export function chosenFiles(): string[] {
  return [...drafts.values()].flatMap(({ files }) => files.map(({ file }) => file.name));
}

/** Stores the texts for a reload of the page. */
export function saveDrafts(): void {
  let remaining = MAX_STORED_CHARS;
  const texts: [string, string][] = [];
  for (const [session, { text }] of [...drafts].reverse()) {
    if (!text || text.length > remaining) continue;
    remaining -= text.length;
    texts.unshift([session, text]);
  }
  try {
    if (texts.length) sessionStorage.setItem(STORAGE_KEY, JSON.stringify(texts));
    else sessionStorage.removeItem(STORAGE_KEY);
  } catch {
    // The storage is full: only a reload would lose the drafts.
  }
}

function loadDrafts(): [string, string][] {
  try {
    const stored: unknown = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "[]");
    return Array.isArray(stored) ? stored.filter((item): item is [string, string] => Array.isArray(item)) : [];
  } catch {
    return [];
  }
}
