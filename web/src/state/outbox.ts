// What was said and not yet taken by the server, kept over a reload of the page. Files are not kept: they are too large.
import type { Message } from "../protocol/frames";

const KEPT = "parlor.outbox.";

/** The messages of a session that wait to be sent. */
export function keptOutbox(session: string): Message[] {
  try {
    const kept: unknown = JSON.parse(sessionStorage.getItem(KEPT + session) ?? "[]");
    return Array.isArray(kept) ? (kept as Message[]) : [];
  } catch {
    return [];
  }
}

/** Keeps the messages that wait; none is as good as forgetting. */
export function keepOutbox(session: string, messages: readonly Message[]): void {
  const texts = messages.filter(({ attachments }) => !attachments?.length);
  try {
    if (texts.length) sessionStorage.setItem(KEPT + session, JSON.stringify(texts));
    else sessionStorage.removeItem(KEPT + session);
  } catch {
    // More than a browser keeps: it is sent all the same, and only a reload would lose it.
  }
}
