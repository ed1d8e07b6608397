// The token: where the page keeps it, and the one-time code of a link that is exchanged for it.
// This machine needs none: its server gives the token out to whoever asks from here.

const KEPT = "parlor.token";

/** The token that was entered or claimed, or nothing. */
export function keptToken(): string {
  return localStorage.getItem(KEPT) ?? "";
}

/** Keeps a token for this browser; an empty one is forgotten. */
export function keepToken(token: string): void {
  if (token) localStorage.setItem(KEPT, token);
  else localStorage.removeItem(KEPT);
}

/** The header that proves who asks, if there is something to prove it with. */
export function proof(token = keptToken()): Record<string, string> {
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Takes the one-time code out of the address, so that it stays neither there nor in the history. */
export function takeCode(): string {
  const code =
    new URLSearchParams(location.hash.replace(/^#/, "")).get("code") ?? new URLSearchParams(location.search).get("code");
  if (code) history.replaceState(null, "", "/");
  return code ?? "";
}
