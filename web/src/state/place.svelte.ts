// Where on the page one is. The address after `#` says it, so that links, the history and a reload work: where it says
// nothing, or nothing that there is, it is made to.

/** A place of the page. */
export type Place =
  | { name: "chat"; session: string }
  | { name: "house" }
  | { name: "terminals"; process: string }
  | { name: "usage" };

const LAST = "parlor.session";
const MADE = "parlor.fresh";
/** The last session that was made up in this window, until something is said in it: a reload finds what was begun there. */
let made = sessionStorage.getItem(MADE) ?? "";
const here: { place: Place } = $state({ place: read() });

addEventListener("hashchange", () => {
  here.place = read();
  settle();
});

/** The place that is shown. */
export function place(): Place {
  return here.place;
}

/** The address of a place, for links. */
export function address(to: Place): string {
  if (to.name === "chat") return `#/chat/${encodeURIComponent(to.session)}`;
  if (to.name === "terminals" && to.process) return `#/terminals/${encodeURIComponent(to.process)}`;
  return `#/${to.name}`;
}

/** Makes the address that of the place that is shown. What is no address of a place stays: a one-time code is taken by who needs it. */
export function settle(): void {
  const { hash } = location;
  if (hash !== address(here.place) && (hash === "" || hash.startsWith("#/"))) history.replaceState(null, "", address(here.place));
}

/** Goes somewhere. */
export function go(to: Place): void {
  location.hash = address(to);
}

/** Goes to a conversation in which nothing was said yet. */
export function goFresh(): void {
  go({ name: "chat", session: freshSession() });
}

/** Whether a session was made up here, so that its server has nothing to tell of it. */
export function isFresh(session: string): boolean {
  return session === made;
}

/** Remembers the conversation that the next visit opens. */
export function remember(session: string): void {
  localStorage.setItem(LAST, session);
  if (session === made) make("");
}

/** Forgets a conversation that is no more, so that the next visit does not open it. */
export function forget(session: string): void {
  if (localStorage.getItem(LAST) === session) localStorage.removeItem(LAST);
  if (session === made) make("");
}

/** Takes the name of a conversation that cannot be out of the address; what is shown stays. */
export function dropName(): void {
  here.place = { name: "chat", session: "" };
  history.replaceState(null, "", address(here.place));
}

/** A name that nobody else has; also where the browser does not trust the connection and has no `randomUUID`. */
export function freshId(): string {
  const digits = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})(.*)$/, "$1-$2-$3-$4-$5");
}

function read(): Place {
  const [, name = "", id = ""] = location.hash.match(/^#\/(\w+)\/?(.*)$/) ?? [];
  if (name === "house" || name === "usage") return { name };
  if (name === "terminals") return { name, process: decode(id) };
  if (name === "chat" && id) return { name: "chat", session: decode(id) };
  return { name: "chat", session: localStorage.getItem(LAST) ?? (made || freshSession()) };
}

function freshSession(): string {
  return make(freshId());
}

function make(session: string): string {
  made = session;
  sessionStorage.setItem(MADE, made);
  return made;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
