import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FakeSocket } from "./fake-socket";
import { MAX_EARLY_CHARS, ProcessSocket, type ProcessSocketState } from "./process-socket";

let states: ProcessSocketState[] = [];
let shown: string[] = [];
const connect = (): ProcessSocket =>
  new ProcessSocket("p", {
    onOutput: (bytes) => void shown.push(new TextDecoder().decode(bytes)),
    onJump: (kind) => void shown.push(`(${kind})`),
    onExit: (code) => void shown.push(`(exit ${code})`),
    onState: (state) => void states.push(state),
  });

beforeEach(() => {
  states = [];
  shown = [];
  FakeSocket.created = [];
  vi.stubGlobal("location", { origin: "http://127.0.0.1" });
  vi.stubGlobal("localStorage", { getItem: () => null });
  vi.stubGlobal("WebSocket", FakeSocket);
  vi.stubGlobal("fetch", () => Promise.resolve({ ok: true, json: () => Promise.resolve({ token: "t" }) }));
});
afterEach(() => vi.unstubAllGlobals());

test("a connecting socket is closed after it has opened, without a state change", async () => {
  const connection = connect();
  await vi.waitFor(() => expect(FakeSocket.created).toHaveLength(1));
  const socket = FakeSocket.created[0]!;
  connection.close();
  expect(socket.closedIn).toEqual([]);
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
  expect(socket.closedIn).toEqual([FakeSocket.OPEN]);
  expect(states).toEqual(["connecting"]);
});

test("an open socket is closed at once", async () => {
  const connection = connect();
  await vi.waitFor(() => expect(FakeSocket.created).toHaveLength(1));
  const socket = FakeSocket.created[0]!;
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
  connection.close();
  expect(socket.closedIn).toEqual([FakeSocket.OPEN]);
  expect(states).toEqual(["connecting", "open"]);
});

test("input typed before the first connection is sent once it is open, up to a limit; later input without a connection is dropped", async () => {
  const connection = connect();
  connection.type("ls");
  connection.type("x".repeat(MAX_EARLY_CHARS));
  await vi.waitFor(() => expect(FakeSocket.created).toHaveLength(1));
  const socket = FakeSocket.created[0]!;
  connection.type("\r");
  connection.resize(80, 24);
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
  const typed = (): string[] => socket.sent.map((data) => (typeof data === "string" ? "size" : new TextDecoder().decode(data)));
  expect(typed()).toEqual(["size", "ls\r"]);
  socket.readyState = FakeSocket.CLOSED;
  connection.type("lost");
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
  expect(typed()).toEqual(["size", "ls\r", "size"]);
});

/** The newest socket, opened, after a break of the one before it. */
async function nextSocket(): Promise<FakeSocket> {
  const count = FakeSocket.created.length;
  if (count > 0) FakeSocket.created[count - 1]!.onclose();
  await vi.waitFor(() => expect(FakeSocket.created).toHaveLength(count + 1));
  const socket = FakeSocket.created[count]!;
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
  return socket;
}

const output = (text: string): { data: ArrayBuffer } => ({ data: new TextEncoder().encode(text).buffer });
const offset = (number: number): { data: string } => ({ data: JSON.stringify({ type: "output", offset: number }) });
const query = (socket: FakeSocket): string => new URL(socket.url).search;

test("a reconnect asks for the output after the last byte, and reports a gap or a restart", async () => {
  vi.stubGlobal("window", globalThis);
  connect();
  const first = await nextSocket();
  expect(query(first)).toBe("?after=0");
  for (const message of [offset(100), output("ab"), output("c")]) first.onmessage(message);
  const second = await nextSocket();
  expect(query(second)).toBe("?after=103");
  for (const message of [offset(103), output("d"), offset(200), output("e")]) second.onmessage(message);
  const third = await nextSocket();
  expect(query(third)).toBe("?after=201");
  for (const message of [offset(5), output("f"), { data: JSON.stringify({ type: "exited", exit_code: 3 }) }]) third.onmessage(message);
  expect(shown).toEqual(["ab", "c", "d", "(gap)", "e", "(restart)", "f", "(exit 3)"]);
});

test("output without an offset is a restart, and the next connection asks for everything", async () => {
  vi.stubGlobal("window", globalThis);
  connect();
  for (const text of ["ab", "abc"]) {
    const socket = await nextSocket();
    expect(query(socket)).toBe("?after=0");
    socket.onmessage(output(text));
    socket.onmessage(output("!"));
  }
  expect(shown).toEqual(["(restart)", "ab", "!", "(restart)", "abc", "!"]);
});
