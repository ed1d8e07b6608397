// What was said and not yet taken by the server, by session. All of it is there until the page is left, also while another
// session or the question for a token is on the screen; texts outlast a reload. Files do not: they are too large.
import type { Message } from "../protocol/frames";

/** So many letters of files, in base64, may wait in all sessions together; who has more to send waits until some are taken. */
export const MAX_WAITING_CHARS = 128 * 1024 * 1024;

const KEPT = "parlor.outbox.";

const waiting = new Map<string, readonly Message[]>();

/** The messages of a session that wait to be sent. */
export function keptOutbox(session: string): readonly Message[] {
  const here = waiting.get(session);
  if (here) return here;
  try {
    const kept: unknown = JSON.parse(sessionStorage.getItem(KEPT + session) ?? "[]");
    return Array.isArray(kept) ? (kept as Message[]) : [];
  } catch {
    return [];
  }
}

/** Keeps the messages that wait; none is as good as forgetting. */
export function keepOutbox(session: string, messages: readonly Message[]): void {
  if (messages.length) waiting.set(session, messages);
  else waiting.delete(session);
  const texts = messages.filter(({ attachments }) => !attachments?.length);
  try {
    if (texts.length) sessionStorage.setItem(KEPT + session, JSON.stringify(texts));
    else sessionStorage.removeItem(KEPT + session);
  } catch {
    // More than a browser keeps: it is sent all the same, and only a reload would lose it.
  }
}

/** The names of the files that wait: their messages go with the page. */
export function waitingFiles(): string[] {
  return [...waiting.values()].flat().flatMap(({ attachments = [] }) => attachments.map(({ filename }) => filename));
}

/** Whether as many files wait as may. */
export function isOutboxFull(): boolean {
  let chars = 0;
  for (const messages of waiting.values()) {
    for (const { attachments = [] } of messages) for (const { data } of attachments) chars += data.length;
  }
  return chars >= MAX_WAITING_CHARS;
}
