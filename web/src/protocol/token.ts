// The server's token. The page keeps it only in memory. For the next visit the server sets a cookie, in exchange for the token or
// for a one-time code; scripts cannot read that cookie. The user who runs the server needs neither on the same machine.

/** The localStorage key in which older versions of the page kept the token. */
const OLD_KEY = "parlor.token";

/** The token that the user entered or claimed since the page was loaded; needed by browsers that reject cookies. */
let memoryToken = "";

/** Keeps a token until the page is closed; the empty string clears it. */
export function setToken(token: string): void {
  memoryToken = token;
}

/** Removes the token that an older version of the page stored, and returns it so that the caller can exchange it for a cookie. */
export function takeStoredToken(): string {
  const token = localStorage.getItem(OLD_KEY) ?? "";
  localStorage.removeItem(OLD_KEY);
  return token;
}

/** The `Authorization` header, or no header if there is no token. */
export function authHeaders(token = memoryToken): Record<string, string> {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Reads the one-time code from the address and removes it there, so that it does not stay in the browser's history. */
export function takeCodeFromAddress(): string {
  const code =
    new URLSearchParams(location.hash.replace(/^#/, "")).get("code") ?? new URLSearchParams(location.search).get("code");
  if (code) history.replaceState(null, "", "/");
  return code ?? "";
}
