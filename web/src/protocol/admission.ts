// Why a socket was not let in. A browser keeps the answer to a handshake to itself, so the same address is asked once more
// without an upgrade: the server makes the same checks, and that the upgrade is missing it says only after all of them
// (docs/protocols/supr-http.md, "The handshake").
import { proof } from "./token";

/** What stands between the page and the server. */
export type Hindrance =
  /** Nobody answers, or not now: it may be over in a moment. */
  | { kind: "away" }
  /** The token does not hold. */
  | { kind: "locked" }
  /** No session can be called that. */
  | { kind: "misnamed"; words: string }
  /** Somebody has to do something, or a while has to pass. */
  | { kind: "barred"; words: string }
  /** The server has no objection. */
  | { kind: "none" };

/** Asks why the socket at an address was not let in. */
export async function hindrance(address: string, secret: string): Promise<Hindrance> {
  try {
    const answer = await fetch(address.replace(/^ws/, "http"), { headers: proof(secret) });
    return judge(answer.status, (await answer.text()).trim());
  } catch {
    return { kind: "away" };
  }
}

/** What an answer means. */
export function judge(status: number, words: string): Hindrance {
  if (status === 401) return { kind: "locked" };
  if (status === 400) return words === "Bad Request" ? { kind: "none" } : { kind: "misnamed", words };
  if (status === 403) return { kind: "barred", words: `The server lets nobody in under this address: ${words.replace(/\.$/, "") || "forbidden"}.` };
  if (status === 404) return { kind: "barred", words: "The chat of this server is switched off: see enabled of [channels.supr] in its settings." };
  if (status === 429) return { kind: "barred", words: "The server was asked too often from here. It is asked again in a while." };
  if (status === 503 && words === "too many connections") return { kind: "barred", words: "The server is full: it has as many connections as it takes. Close another window, or wait for a place." };
  return { kind: "away" };
}

/** Words for a server that has no objection to a socket which nevertheless does not open. */
export function blocked(origin: string): string {
  return `The server answers, but no WebSocket to it opens. A proxy in between has to pass them on, and allow_origins of [channels.supr], if it is set, has to name ${origin}.`;
}
