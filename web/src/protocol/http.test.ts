import { expect, test, vi } from "vitest";
import { listSessions, loadEvents, loadMedia, NotFoundError, RefusedError, UnauthorizedError, UnreachableError } from "./http";

vi.stubGlobal("localStorage", { getItem: () => null });

/** Makes every request return this response. */
function respond(body: BodyInit, status = 200): void {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(body, { status })));
}

/** A body that fails while it is read. */
const brokenBody = (): ReadableStream => new ReadableStream({ pull: (controller) => controller.error(new TypeError("network error")) });

test("a response that breaks off or is not JSON counts as unreachable", async () => {
  for (const body of ['{"events":[', "<html>Log in to this network</html>", "", brokenBody()]) {
    respond(body);
    await expect(loadEvents("s", null)).rejects.toThrow(UnreachableError);
  }
  respond(brokenBody());
  await expect(loadMedia("m")).rejects.toThrow(/broke off.*Try again/);
});

test("an error response keeps its class even if its body breaks off", async () => {
  for (const [status, errorClass] of [[401, UnauthorizedError], [404, NotFoundError], [503, RefusedError]] as const) {
    respond(brokenBody(), status);
    await expect(listSessions("")).rejects.toThrow(errorClass);
  }
});
