// The HTTP calls of docs/protocols/supr-http.md. An older server answers 404 to a call that it lacks: `NotFoundError`.
import type { Frame } from "./frames";
import { authHeaders } from "./token";

/** The server requires a token, or rejects the one it got (401). */
export class UnauthorizedError extends Error {}

/** The server does not know this call or this object (404). */
export class NotFoundError extends Error {}

/** Any other error status; the message is the text that the server sent. */
export class RefusedError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** No valid response: the connection failed or broke off, or a proxy answered in place of parlor. */
export class UnreachableError extends Error {}

/** The response of `GET /api/supr/token`. */
export interface TokenResponse {
  token: string;
  enabled: boolean;
}

/** An entry of the list of sessions. Older servers do not send the optional members. */
export interface SessionSummary {
  id: string;
  title: string;
  preview: string;
  message_count: number;
  created: string;
  updated: string;
  /** The title that the user gave, uncut; `title` may be shortened. */
  full_title?: string | null;
  door?: string;
  agent_id?: string;
  running?: boolean;
  queued?: number;
  /** False if another parlor process has the session open. */
  here?: boolean;
  last_event?: { event_type: string; timestamp: string; error_code?: string } | null;
  /** The question that the run of the session asks. */
  question?: { question_id: string; title: string };
}

/** An answer to a question; with `deny`, the message tells the agent why. */
export interface QuestionAnswer {
  answer: "once" | "always" | "deny";
  message?: string;
}

/** A page of the frames that the session's socket would send, oldest first. `before` is the cursor of the next older page. */
export interface EventPage {
  events: Frame[];
  before: number | null;
  last_event_id: string | null;
}

/** The agents, models and reasoning levels that the user can choose for a message. */
export interface Choices {
  agents: { id: string; name: string; kind: string; model: string | null }[];
  default_agent: string;
  models: { name: string; provider: string; model: string }[];
  reasoning: string[];
  /** The path of the settings file on the server's machine; older servers do not send it. */
  settings_file?: string;
}

/** The usage of one day. */
export interface UsageDay {
  date: string;
  runs: number;
  failed: number;
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cost_micros: number;
}

/** The usage by day and by model. */
export interface Usage {
  days: UsageDay[];
  models: { model: string; input_tokens: number; output_tokens: number; cost_micros: number }[];
}

/** How far the tools of agents reach. */
export type PolicyMode = "read-only" | "workspace" | "full";

/** The mode of a session: the chosen one if there is one, else the default of the settings. */
export interface SessionMode {
  mode: PolicyMode | null;
  /** Older servers do not send it. */
  default?: PolicyMode;
}

/** What is under a name; `mode` is octal. */
export interface FileInfo {
  kind: "missing" | "file" | "folder" | "link" | "special";
  size?: number;
  mode?: string;
  target?: string;
}

/** A file that a run changed. */
export interface ChangedFile {
  path: string;
  change: "created" | "changed" | "deleted" | "mode";
  before: FileInfo;
  after: FileInfo;
  /** A unified diff from its first `@@` on. */
  diff?: string;
  shown: "text" | "binary" | "not_shown" | "no_file";
  truncated?: boolean;
  /** Why an undo cannot put the file back. */
  obstacle?: string;
}

/** What a run changed in files. */
export interface RunChanges {
  folder: string;
  undone: boolean;
  /** How many files were changed, also those that are not listed. */
  total: number;
  files: ChangedFile[];
  notes: string[];
}

/** What an undo did. */
export interface UndoResult {
  restored: number;
  kept: number;
  files: { path: string; outcome: "restored" | "unchanged" | "kept"; reason?: string }[];
}

/** A node that shares the log of this server. */
export interface ClusterNode {
  node: string;
  pid: number;
  workspace?: string;
  alive: boolean;
  /** How many sessions it has open. */
  sessions: number;
  /** How many of them have an active run. */
  runs: number;
}

/** A server of tools that agents may call. */
export interface ToolServer {
  name: string;
  /** The project's file that names it; absent for the settings. */
  origin?: string;
  state: "idle" | "starting" | "running" | "failed";
  description?: string;
  tools?: number;
  reason?: string;
}

/** A process that the server lists. */
export interface ProcessInfo {
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
  /** False if another parlor process runs it; then the page can only watch. */
  here: boolean;
}

/** How many sessions one page of the list has. */
export const SESSIONS_PER_PAGE = 50;

/** How many events the first page has: enough to fill some screens. */
export const FIRST_EVENTS = 300;

/** How many events each older page has. */
export const OLDER_EVENTS = 1000;

const sessionPath = (id: string): string => `/api/sessions/${encodeURIComponent(id)}`;

/** The token with which to open sockets. */
export const loadToken = (): Promise<TokenResponse> => requestJson("GET", "/api/supr/token");

/** Exchanges the code of a one-time link, or the token, for a cookie; returns the token. */
export const claimToken = (proof: { code: string } | { token: string }): Promise<TokenResponse> => requestJson("POST", "/api/supr/claim", proof);

/** Sessions that match the query, most recently used first. */
export const listSessions = (query: string, offset = 0, limit = SESSIONS_PER_PAGE): Promise<SessionSummary[]> =>
  requestJson("GET", `/api/sessions?${new URLSearchParams({ q: query, offset: `${offset}`, limit: `${limit}` })}`);

/** Changes the title of a session. */
export const renameSession = (id: string, title: string): Promise<SessionSummary> => requestJson("PATCH", sessionPath(id), { title });

/** Deletes a session and all of its messages. */
export const deleteSession = (id: string): Promise<void> => requestNothing("DELETE", sessionPath(id));

/** The newest events before a cursor, or the newest of all if the cursor is null. */
export const loadEvents = (id: string, before: number | null): Promise<EventPage> =>
  requestJson("GET", `${sessionPath(id)}/events?${new URLSearchParams(before === null ? { limit: `${FIRST_EVENTS}` } : { limit: `${OLDER_EVENTS}`, before: `${before}` })}`);

/** Answers a question. Fails with `RefusedError` and the status 409 if it was settled before. */
export const answerQuestion = (session: string, question: string, answer: QuestionAnswer): Promise<void> =>
  requestNothing("POST", `${sessionPath(session)}/questions/${encodeURIComponent(question)}/answer`, answer);

/** The mode of a session. Fails with `NotFoundError` before its first message. */
export const loadMode = (session: string): Promise<SessionMode> => requestJson("GET", `${sessionPath(session)}/mode`);

/** Chooses the mode of a session from its next run on. */
export const chooseMode = (session: string, mode: PolicyMode): Promise<SessionMode> => requestJson("PUT", `${sessionPath(session)}/mode`, { mode });

const runPath = (session: string, run: string): string => `${sessionPath(session)}/runs/${encodeURIComponent(run)}`;

/** What a run changed in files. Fails with `NotFoundError` if nothing is recorded. */
export const loadChanges = (session: string, run: string): Promise<RunChanges> => requestJson("GET", `${runPath(session, run)}/changes`);

/** Puts back what a run changed; with `force`, also files that were changed after the run. */
export const undoRun = (session: string, run: string, force: boolean): Promise<UndoResult> => requestJson("POST", `${runPath(session, run)}/undo`, { force });

/** Loads what the user can choose for a message. */
export const loadChoices = (): Promise<Choices> => requestJson("GET", "/api/choices");

/** Loads the usage of the last days, today included. */
export const loadUsage = (days: number): Promise<Usage> => requestJson("GET", `/api/usage?days=${days}`);

/** The nodes that share the log of this server; none if it is on one machine. */
export const loadNodes = (): Promise<ClusterNode[]> => requestJson<{ nodes: ClusterNode[] }>("GET", "/api/nodes").then(({ nodes }) => nodes);

/** The MCP servers of the settings and of projects, as they are now. */
export const loadToolServers = (): Promise<ToolServer[]> => requestJson<{ servers: ToolServer[] }>("GET", "/api/mcp/servers").then(({ servers }) => servers);

/** The processes of this parlor home: those of this server, and those that other parlor processes share. */
export const listProcesses = (): Promise<ProcessInfo[]> => requestJson("GET", "/api/processes");

/** Starts a shell on a new terminal of this size. */
export const startShell = (cols: number, rows: number): Promise<ProcessInfo> => requestJson("POST", "/api/processes", { cols, rows });

/** Stops a running process, or removes an ended one from the list. */
export const endProcess = (id: string): Promise<void> => requestNothing("DELETE", `/api/processes/${encodeURIComponent(id)}`);

/** Loads a file that belongs to a message. */
export async function loadMedia(id: string): Promise<Blob> {
  const response = await request("GET", `/api/media/${encodeURIComponent(id)}`);
  return response.blob().catch(throwUnreadable);
}

async function requestJson<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await request(method, path, body);
  return response.json().catch(throwUnreadable) as Promise<T>;
}

function throwUnreadable(): never {
  throw new UnreachableError("The server's answer broke off, or it did not come from parlor. Try again.");
}

async function requestNothing(method: string, path: string, body?: unknown): Promise<void> {
  await request(method, path, body);
}

async function request(method: string, path: string, body?: unknown): Promise<Response> {
  const headers = authHeaders();
  const init: RequestInit = { method, headers };
  if (body !== undefined) {
    init.headers = { ...headers, "Content-Type": "application/json" };
    init.body = JSON.stringify(body);
  }
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch {
    throw new UnreachableError("The server does not answer.");
  }
  if (response.ok) return response;
  const text = (await response.text().catch(() => "")).trim();
  if (response.status === 401) throw new UnauthorizedError("The server requires a token.");
  if (response.status === 404) throw new NotFoundError(text || "Not found.");
  throw new RefusedError(text || `The server refused the request (status ${response.status}).`, response.status);
}
