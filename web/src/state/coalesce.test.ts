import { expect, it } from "vitest";
import { coalesce } from "./coalesce";

/** A coalesced task whose calls the test finishes by hand. */
function manualTask() {
  const calls: { finish: () => void; fail: () => void }[] = [];
  const run = coalesce(() => new Promise<void>((finish, reject) => calls.push({ finish, fail: () => reject(new Error("failed")) })));
  return { calls, run };
}

it("runs once more for all callers during a run", async () => {
  const { calls, run } = manualTask();
  const first = run();
  const others = [run(), run(), run()];
  expect(calls.length).toBe(1);
  calls[0]?.finish();
  await first;
  await expect.poll(() => calls.length).toBe(2);
  calls[1]?.finish();
  await Promise.all(others);
  expect(calls.length).toBe(2);
  void run();
  expect(calls.length).toBe(3);
});

it("runs the waiting call after a failure", async () => {
  const { calls, run } = manualTask();
  const first = run();
  const second = run();
  calls[0]?.fail();
  await expect(first).rejects.toThrow("failed");
  await expect.poll(() => calls.length).toBe(2);
  calls[1]?.finish();
  await second;
  expect(calls.length).toBe(2);
});
