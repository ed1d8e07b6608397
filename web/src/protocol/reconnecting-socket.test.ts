import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FakeSocket } from "./fake-socket";
import { ReconnectingSocket, type SocketState } from "./reconnecting-socket";

const network = new EventTarget();
let states: SocketState[] = [];
let isReachable = true;
const newConnection = (): ReconnectingSocket => new ReconnectingSocket("s", { lastEventId: () => null, onFrame: () => undefined, onState: (state) => void states.push(state) });

/** Waits until `count` sockets were created, and opens the newest. */
async function openSocket(count: number): Promise<void> {
  await vi.waitFor(() => expect(FakeSocket.created).toHaveLength(count));
  const socket = FakeSocket.created[count - 1]!;
  socket.readyState = FakeSocket.OPEN;
  socket.onopen();
}

beforeEach(() => {
  states = [];
  isReachable = true;
  FakeSocket.created = [];
  // `setTimeout` does nothing, so the connection never reconnects by its timer.
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

test("the offline event disconnects at once, and the online event reconnects at once", async () => {
  const connection = newConnection();
  connection.open();
  await openSocket(1);
  isReachable = false;
  network.dispatchEvent(new Event("offline"));
  await vi.waitFor(() => expect(states).toEqual(["connecting", "open", "reconnecting"]));
  isReachable = true;
  network.dispatchEvent(new Event("online"));
  await openSocket(2);
  expect(states.slice(3)).toEqual(["connecting", "open"]);
  connection.close();
});

test("the offline event does not disconnect from a server on this machine", async () => {
  const connection = newConnection();
  connection.open();
  await openSocket(1);
  const fetched = vi.spyOn(globalThis, "fetch");
  network.dispatchEvent(new Event("offline"));
  expect(fetched).toHaveBeenCalledOnce();
  // Lets the answer of `fetch` be handled first.
  await vi.advanceTimersByTimeAsync(0);
  network.dispatchEvent(new Event("online"));
  expect(states).toEqual(["connecting", "open"]);
  expect(FakeSocket.created).toHaveLength(1);
  connection.close();
});

test("a closed connection stays closed and removes its event listeners", async () => {
  const [added, removed] = [vi.spyOn(globalThis, "addEventListener"), vi.spyOn(globalThis, "removeEventListener")];
  const connection = newConnection();
  connection.open();
  await openSocket(1);
  connection.close();
  network.dispatchEvent(new Event("offline"));
  network.dispatchEvent(new Event("online"));
  expect(states).toEqual(["connecting", "open", "closed"]);
  expect(removed.mock.calls).toEqual(added.mock.calls);
});

test("a connecting socket is closed after it has opened", async () => {
  const connection = newConnection();
  connection.open();
  await vi.waitFor(() => expect(FakeSocket.created).toHaveLength(1));
  const socket = FakeSocket.created[0]!;
  connection.close();
  expect(socket.closedIn).toEqual([]);
  await openSocket(1);
  expect(socket.closedIn).toEqual([FakeSocket.OPEN]);
  expect(states).toEqual(["connecting", "closed"]);
});
