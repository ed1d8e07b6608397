// The token: the page holds it no longer than it is open. What lets a browser in at its next visit is a cookie that the server
// gives for the token or for a one-time code, and that no script can read. The server's own user on its machine needs neither.

/** Where older versions of the page kept the token. */
const OLD = "parlor.token";

/** What was entered or claimed since the page was loaded: for browsers that take no cookies. */
let held = "";

/** Holds a token while the page is open; an empty one is forgotten. */
export function holdToken(token: string): void {
  held = token;
}

/** Takes the token that an older version of the page has left, to be exchanged for a cookie. */
export function takeOldToken(): string {
  const token = localStorage.getItem(OLD) ?? "";
  localStorage.removeItem(OLD);
  return token;
}

/** The header that proves who asks, if there is something to prove it with. */
export function proof(token = held): Record<string, string> {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Takes the one-time code out of the address, so that it stays neither there nor in the history. */
export function takeCode(): string {
  const code =
    new URLSearchParams(location.hash.replace(/^#/, "")).get("code") ?? new URLSearchParams(location.search).get("code");
  if (code) history.replaceState(null, "", "/");
  return code ?? "";
}
