import { expect, test, vi } from "vitest";
import { events, Locked, media, Missing, Refused, sessions, Unreachable } from "./http";

vi.stubGlobal("localStorage", { getItem: () => null });

/** Whatever is asked, this comes back. */
function answer(body: BodyInit, status = 200): void {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(body, { status })));
}

/** A body that breaks off. */
const broken = (): ReadableStream => new ReadableStream({ pull: (controller) => controller.error(new TypeError("network error")) });

test("an answer that broke off, or is no JSON, is as good as none", async () => {
  for (const body of ['{"events":[', "<html>Log in to this network</html>", "", broken()]) {
    answer(body);
    await expect(events("s", null)).rejects.toThrow(Unreachable);
  }
  answer(broken());
  await expect(media("m")).rejects.toThrow(/broke off.*Try again/);
});

test("a refusal keeps its kind, also when its words break off", async () => {
  for (const [status, kind] of [[401, Locked], [404, Missing], [503, Refused]] as const) {
    answer(broken(), status);
    await expect(sessions("")).rejects.toThrow(kind);
  }
});
