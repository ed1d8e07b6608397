import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FakeSocket } from "./fake-socket";
import { MAX_EARLY_CHARS, ProcessSocket, type ProcessSocketState } from "./process-socket";

let states: ProcessSocketState[] = [];
const connect = (): ProcessSocket => new ProcessSocket("p", { onOutput: () => undefined, onExit: () => undefined, onState: (state) => void states.push(state) });

beforeEach(() => {
  states = [];
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
