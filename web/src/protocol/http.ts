// The calls over HTTP that docs/protocols/supr-http.md lists. A server that lacks one answers 404: `Missing`.
import type { Frame } from "./frames";
import { proof } from "./token";

/** The server wants a token, or a newer one. */
export class Locked extends Error {}

/** The server does not know this call, or not this thing. */
export class Missing extends Error {}

/** The server refuses, in its own words. */
export class Refused extends Error {
  constructor(
    words: string,
    readonly status: number,
  ) {
    super(words);
  }
}

/** The server cannot be reached, or what answers is not to be understood: a connection that broke, or a proxy without a server. */
export class Unreachable extends Error {}

/** What `GET /api/supr/token` tells. */
export interface TokenAnswer {
  token: string;
  enabled: boolean;
}

/** A line of the list of sessions. The members behind `updated` are unknown to older servers. */
export interface SessionLine {
  id: string;
  title: string;
  preview: string;
  message_count: number;
  created: string;
  updated: string;
  /** The title that it was given, whole. */
  full_title?: string | null;
  door?: string;
  agent_id?: string;
  running?: boolean;
  queued?: number;
  here?: boolean;
  last_event?: { event_type: string; timestamp: string; error_code?: string } | null;
}

/** A page of what a session's socket would have told, oldest first. */
export interface EventPage {
  events: Frame[];
  before: number | null;
  last_event_id: string | null;
}

/** What can be chosen for a message. */
export interface Choices {
  agents: { id: string; name: string; kind: string; model: string | null }[];
  default_agent: string;
  models: { name: string; provider: string; model: string }[];
  reasoning: string[];
  /** Where models are named on the machine of the server; older servers do not tell. */
  settings_file?: string;
}

/** What was used on a day. */
export interface UsageDay {
  date: string;
  runs: number;
  failed: number;
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cost_micros: number;
}

/** What was used, by day and by model. */
export interface Usage {
  days: UsageDay[];
  models: { model: string; input_tokens: number; output_tokens: number; cost_micros: number }[];
}

/** A process that can be looked at. */
export interface ProcessLine {
  id: string;
  name: string;
  door: string;
  pid: number;
  command: string[];
  tty: boolean;
  running: boolean;
  exit_code: number | null;
  started: string;
  cols: number;
  rows: number;
  here: boolean;
}

/** How many sessions the page asks for at once. */
export const SESSIONS_AT_A_TIME = 50;

/** How many events the page asks for first: some screens full. */
export const FIRST_EVENTS = 300;

/** How many events the page asks for at once when it goes back. */
export const OLDER_EVENTS = 1000;

const session = (id: string): string => `/api/sessions/${encodeURIComponent(id)}`;

/** The token for the socket. */
export const token = (): Promise<TokenAnswer> => json("GET", "/api/supr/token");

/** Exchanges the code of a one-time link, or the token, for a cookie; tells the token. */
export const claim = (by: { code: string } | { token: string }): Promise<TokenAnswer> => json("POST", "/api/supr/claim", by);

/** Sessions, the last used first. */
export const sessions = (query: string, offset = 0, limit = SESSIONS_AT_A_TIME): Promise<SessionLine[]> =>
  json("GET", `/api/sessions?${new URLSearchParams({ q: query, offset: `${offset}`, limit: `${limit}` })}`);

/** Gives a session another title. */
export const rename = (id: string, title: string): Promise<SessionLine> => json("PATCH", session(id), { title });

/** Deletes a session and all that was said in it. */
export const remove = (id: string): Promise<void> => nothing("DELETE", session(id));

/** The newest events before a cursor, or the newest of all. */
export const events = (id: string, before: number | null): Promise<EventPage> =>
  json("GET", `${session(id)}/events?${new URLSearchParams(before === null ? { limit: `${FIRST_EVENTS}` } : { limit: `${OLDER_EVENTS}`, before: `${before}` })}`);

/** Agents, models and reasoning to choose from. */
export const choices = (): Promise<Choices> => json("GET", "/api/choices");

/** What was used in the last days. */
export const usage = (days: number): Promise<Usage> => json("GET", `/api/usage?days=${days}`);

/** The processes of this house. */
export const processes = (): Promise<ProcessLine[]> => json("GET", "/api/processes");

/** Starts a shell on a terminal. */
export const startShell = (cols: number, rows: number): Promise<ProcessLine> => json("POST", "/api/processes", { cols, rows });

/** Ends a process, or takes one that has ended off the list. */
export const endProcess = (id: string): Promise<void> => nothing("DELETE", `/api/processes/${encodeURIComponent(id)}`);

/** The bytes of a file of a message. */
export async function media(id: string): Promise<Blob> {
  const answer = await ask("GET", `/api/media/${encodeURIComponent(id)}`);
  return answer.blob().catch(notUnderstood);
}

async function json<T>(method: string, path: string, body?: unknown): Promise<T> {
  const answer = await ask(method, path, body);
  return answer.json().catch(notUnderstood) as Promise<T>;
}

function notUnderstood(): never {
  throw new Unreachable("The answer of the server broke off, or it is not from parlor. Try again.");
}

async function nothing(method: string, path: string): Promise<void> {
  await ask(method, path);
}

async function ask(method: string, path: string, body?: unknown): Promise<Response> {
  const headers = proof();
  const request: RequestInit = { method, headers };
  if (body !== undefined) {
    request.headers = { ...headers, "Content-Type": "application/json" };
    request.body = JSON.stringify(body);
  }
  let answer: Response;
  try {
    answer = await fetch(path, request);
  } catch {
    throw new Unreachable("The server cannot be reached.");
  }
  if (answer.ok) return answer;
  const words = (await answer.text().catch(() => "")).trim();
  if (answer.status === 401) throw new Locked("A token is needed.");
  if (answer.status === 404) throw new Missing(words || "Not found.");
  throw new Refused(words || `The server refuses (${answer.status}).`, answer.status);
}
