// Messages that the server has not acknowledged yet, by session. They stay while another screen or the token form is shown. Texts
// also survive a reload of the page; messages with files do not, because they are too large for the browser's storage.
import type { Message } from "../protocol/frames";

/** The limit of base64 characters of files that wait in all sessions together. Beyond it the page sends nothing more. */
export const MAX_WAITING_CHARS = 128 * 1024 * 1024;

const STORAGE_PREFIX = "parlor.outbox.";

const waiting = new Map<string, readonly Message[]>();

/** The waiting messages of a session. */
export function loadOutbox(session: string): readonly Message[] {
  const inMemory = waiting.get(session);
  if (inMemory) return inMemory;
  try {
    const stored: unknown = JSON.parse(sessionStorage.getItem(STORAGE_PREFIX + session) ?? "[]");
    return Array.isArray(stored) ? (stored as Message[]) : [];
  } catch {
    return [];
  }
}

/** Replaces the waiting messages of a session. */
export function saveOutbox(session: string, messages: readonly Message[]): void {
  if (messages.length) waiting.set(session, messages);
  else waiting.delete(session);
  const texts = messages.filter(({ attachments }) => !attachments?.length);
  try {
    if (texts.length) sessionStorage.setItem(STORAGE_PREFIX + session, JSON.stringify(texts));
    else sessionStorage.removeItem(STORAGE_PREFIX + session);
  } catch {
    // The storage is full. The messages are still sent; only a reload would lose them.
  }
}

/** The names of waiting files; a reload would lose their messages. */
export function waitingFiles(): string[] {
  return [...waiting.values()].flat().flatMap(({ attachments = [] }) => attachments.map(({ filename }) => filename));
}

/** Whether the waiting files have reached `MAX_WAITING_CHARS`. */
export function isOutboxFull(): boolean {
  let chars = 0;
  for (const messages of waiting.values()) {
    for (const { attachments = [] } of messages) for (const { data } of attachments) chars += data.length;
  }
  return chars >= MAX_WAITING_CHARS;
}
