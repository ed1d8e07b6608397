import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Line, type LineState } from "./socket";
import { FakeSocket } from "./socket.fake";

const network = new EventTarget();
let states: LineState[] = [];
let isReachable = true;
const line = (): Line => new Line("s", { lastEvent: () => null, onFrame: () => undefined, onState: (state) => void states.push(state) });

/** Lets the newest socket open, once it is made. */
async function opened(count: number): Promise<void> {
  await vi.waitFor(() => expect(FakeSocket.made).toHaveLength(count));
  const socket = FakeSocket.made[count - 1]!;
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
}

beforeEach(() => {
  states = [];
  isReachable = true;
  FakeSocket.made = [];
  // Nothing comes back by itself: only what is told to.
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  vi.stubGlobal("window", { setInterval, setTimeout: () => 7 });
  vi.stubGlobal("location", { origin: "http://127.0.0.1" });
  vi.stubGlobal("localStorage", { getItem: () => null });
  vi.stubGlobal("WebSocket", FakeSocket);
  vi.stubGlobal("addEventListener", network.addEventListener.bind(network));
  vi.stubGlobal("removeEventListener", network.removeEventListener.bind(network));
  vi.stubGlobal("fetch", () => (isReachable ? Promise.resolve({ ok: true, json: () => Promise.resolve({ token: "t" }) }) : Promise.reject(new TypeError("offline"))));
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a network that goes is noticed at once, and so is its return", async () => {
  const mine = line();
  mine.open();
  await opened(1);
  isReachable = false;
  network.dispatchEvent(new Event("offline"));
  await vi.waitFor(() => expect(states).toEqual(["connecting", "open", "waiting"]));
  isReachable = true;
  network.dispatchEvent(new Event("online"));
  await opened(2);
  expect(states.slice(3)).toEqual(["connecting", "open"]);
  mine.close();
});

test("a server on this machine needs no network", async () => {
  const mine = line();
  mine.open();
  await opened(1);
  const asked = vi.spyOn(globalThis, "fetch");
  network.dispatchEvent(new Event("offline"));
  expect(asked).toHaveBeenCalledOnce();
  // All that the answer brings about is done before this.
  await vi.advanceTimersByTimeAsync(0);
  network.dispatchEvent(new Event("online"));
  expect(states).toEqual(["connecting", "open"]);
  expect(FakeSocket.made).toHaveLength(1);
  mine.close();
});

test("a line that was left stays away, and listens no longer", async () => {
  const [added, removed] = [vi.spyOn(globalThis, "addEventListener"), vi.spyOn(globalThis, "removeEventListener")];
  const mine = line();
  mine.open();
  await opened(1);
  mine.close();
  network.dispatchEvent(new Event("offline"));
  network.dispatchEvent(new Event("online"));
  expect(states).toEqual(["connecting", "open", "closed"]);
  expect(removed.mock.calls).toEqual(added.mock.calls);
});

test("a socket that is about to open is closed when it has opened", async () => {
  const mine = line();
  mine.open();
  await vi.waitFor(() => expect(FakeSocket.made).toHaveLength(1));
  const socket = FakeSocket.made[0]!;
  mine.close();
  expect(socket.closedIn).toEqual([]);
  await opened(1);
  expect(socket.closedIn).toEqual([FakeSocket.OPEN]);
  expect(states).toEqual(["connecting", "closed"]);
});
