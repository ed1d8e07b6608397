import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type LinkState, MAX_EARLY, ProcessLink } from "./process";
import { FakeSocket } from "./socket.fake";

let states: LinkState[] = [];
const link = (): ProcessLink => new ProcessLink("p", { onOutput: () => undefined, onExit: () => undefined, onState: (state) => void states.push(state) });

beforeEach(() => {
  states = [];
  FakeSocket.made = [];
  vi.stubGlobal("location", { origin: "http://127.0.0.1" });
  vi.stubGlobal("localStorage", { getItem: () => null });
  vi.stubGlobal("WebSocket", FakeSocket);
  vi.stubGlobal("fetch", () => Promise.resolve({ ok: true, json: () => Promise.resolve({ token: "t" }) }));
});
afterEach(() => vi.unstubAllGlobals());

test("a socket that is about to open is closed when it has, and nobody is told of it", async () => {
  const mine = link();
  await vi.waitFor(() => expect(FakeSocket.made).toHaveLength(1));
  const socket = FakeSocket.made[0]!;
  mine.close();
  expect(socket.closedIn).toEqual([]);
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
  expect(socket.closedIn).toEqual([FakeSocket.OPEN]);
  expect(states).toEqual(["connecting"]);
});

test("a socket that is open is closed at once", async () => {
  const mine = link();
  await vi.waitFor(() => expect(FakeSocket.made).toHaveLength(1));
  const socket = FakeSocket.made[0]!;
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
  mine.close();
  expect(socket.closedIn).toEqual([FakeSocket.OPEN]);
  expect(states).toEqual(["connecting", "open"]);
});

test("what is typed before the first connection is open comes after it, within a limit; after a break it is lost", async () => {
  const mine = link();
  mine.type("ls");
  mine.type("x".repeat(MAX_EARLY));
  await vi.waitFor(() => expect(FakeSocket.made).toHaveLength(1));
  const socket = FakeSocket.made[0]!;
  mine.type("\r");
  mine.resize(80, 24);
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
  const typed = (): string[] => socket.sent.map((data) => (typeof data === "string" ? "size" : new TextDecoder().decode(data)));
  expect(typed()).toEqual(["size", "ls\r"]);
  socket.readyState = FakeSocket.CLOSED;
  mine.type("lost");
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
  expect(typed()).toEqual(["size", "ls\r", "size"]);
});
