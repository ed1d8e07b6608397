// The route: which screen the page shows. The part of the address after `#` holds it, so links, the browser history and reloads
// work. An empty or unknown address is replaced by the address of the screen that is shown.

/** A screen, with the session or process that it shows. */
export type Route =
  | { name: "chat"; session: string }
  | { name: "sessions" }
  | { name: "terminals"; process: string }
  | { name: "usage" };

const LAST_SESSION_KEY = "parlor.session";
const NEW_SESSION_KEY = "parlor.fresh";
/** The id of the newest chat of this tab until its first message is sent; stored so that a reload finds its draft again. */
let newSession = sessionStorage.getItem(NEW_SESSION_KEY) ?? "";
const current: { route: Route } = $state({ route: readAddress() });

addEventListener("hashchange", () => {
  current.route = readAddress();
  normalizeAddress();
});

/** The current route. */
export function route(): Route {
  return current.route;
}

/** The address of a route, for links. */
export function href(to: Route): string {
  if (to.name === "chat") return `#/chat/${encodeURIComponent(to.session)}`;
  if (to.name === "terminals" && to.process) return `#/terminals/${encodeURIComponent(to.process)}`;
  return `#/${to.name}`;
}

/** Replaces an unknown address by that of the current route. Leaves other fragments, such as a one-time code, alone. */
export function normalizeAddress(): void {
  const { hash } = location;
  if (hash !== href(current.route) && (hash === "" || hash.startsWith("#/"))) history.replaceState(null, "", href(current.route));
}

export function navigate(to: Route): void {
  location.hash = href(to);
}

/** Opens an empty chat. */
export function openNewChat(): void {
  navigate({ name: "chat", session: createSessionId() });
}

/** Whether this tab created the session and has sent nothing yet: then the server has no events of it. */
export function isNewSession(session: string): boolean {
  return session === newSession;
}

/** Stores the session that the next visit opens. */
export function rememberSession(session: string): void {
  localStorage.setItem(LAST_SESSION_KEY, session);
  if (session === newSession) setNewSession("");
}

/** Makes sure that the next visit does not open this session, because it was deleted or its id is invalid. */
export function forgetSession(session: string): void {
  if (localStorage.getItem(LAST_SESSION_KEY) === session) localStorage.removeItem(LAST_SESSION_KEY);
  if (session === newSession) setNewSession("");
}

/** Removes an invalid session id from the address; the screen stays. */
export function dropSessionFromAddress(): void {
  current.route = { name: "chat", session: "" };
  history.replaceState(null, "", href(current.route));
}

/** A random UUID. Browsers offer `crypto.randomUUID` only on secure connections. */
export function randomId(): string {
  const digits = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.*)$/, "$1-$2-$3-$4-$5");
}

function readAddress(): Route {
  const [, name = "", id = ""] = location.hash.match(/^#\/(\w+)\/?(.*)$/) ?? [];
  // `#/house` is the address of the sessions screen in links from older versions.
  if (name === "sessions" || name === "house") return { name: "sessions" };
  if (name === "usage") return { name };
  if (name === "terminals") return { name, process: decode(id) };
  if (name === "chat" && id) return { name: "chat", session: decode(id) };
  return { name: "chat", session: localStorage.getItem(LAST_SESSION_KEY) ?? (newSession || createSessionId()) };
}

function createSessionId(): string {
  return setNewSession(randomId());
}

function setNewSession(session: string): string {
  newSession = session;
  sessionStorage.setItem(NEW_SESSION_KEY, newSession);
  return newSession;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
