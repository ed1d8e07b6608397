// Finds out why the server rejected a WebSocket. Browsers hide the answer to a failed handshake from scripts, so the page requests
// the same address again as plain HTTP. The server makes the same checks, and reports the missing upgrade only when all of them
// pass (docs/protocols/supr-http.md, "The handshake").
import { authHeaders } from "./token";

/** Why a WebSocket did not open. */
export type ConnectError =
  /** The server does not answer, or cannot take connections right now. Retrying soon makes sense. */
  | { kind: "unreachable" }
  /** The server does not accept the token. */
  | { kind: "unauthorized" }
  /** The session id in the address is invalid; retrying is useless. */
  | { kind: "invalid-session"; text: string }
  /** The server's limits or settings reject the page; `text` tells the user what to do. */
  | { kind: "refused"; text: string }
  /** The server would accept the socket. */
  | { kind: "none" };

/** Requests the socket's address over HTTP to learn why it did not open. Never rejects. */
export async function findConnectError(address: string, token: string): Promise<ConnectError> {
  try {
    const response = await fetch(address.replace(/^ws/, "http"), { headers: authHeaders(token) });
    return connectErrorFor(response.status, (await response.text()).trim());
  } catch {
    return { kind: "unreachable" };
  }
}

/** Translates the server's HTTP status and body. */
export function connectErrorFor(status: number, body: string): ConnectError {
  if (status === 401) return { kind: "unauthorized" };
  if (status === 400) return body === "Bad Request" ? { kind: "none" } : { kind: "invalid-session", text: body };
  if (status === 403) return { kind: "refused", text: `The server rejects connections to this address: ${body.replace(/\.$/, "") || "forbidden"}.` };
  if (status === 404) return { kind: "refused", text: "The web chat of this server is switched off: see enabled of [channels.supr] in its settings." };
  if (status === 429) return { kind: "refused", text: "The server received too many requests from this machine. The page retries in a moment." };
  if (status === 503 && body === "too many connections") return { kind: "refused", text: "The server has reached its limit of connections. Close another window, or wait until a connection is free." };
  return { kind: "unreachable" };
}

/** Explains a socket that does not open although the server would accept it. */
export function webSocketBlockedText(origin: string): string {
  return `The server answers, but the WebSocket to it does not open. A proxy in between must pass WebSockets on, and the Host header too, or allow_origins of [channels.supr] must name ${origin}: see docs/proxy.md.`;
}
