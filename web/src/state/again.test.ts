import { expect, it } from "vitest";
import { oneAtATime } from "./again";

/** A deed that is done when it is told to be. */
function deed() {
  const begun: { done: () => void; fail: () => void }[] = [];
  const ask = oneAtATime(() => new Promise<void>((done, reject) => begun.push({ done, fail: () => reject(new Error("failed")) })));
  return { begun, ask };
}

it("is done once more for all who ask while it is being done", async () => {
  const { begun, ask } = deed();
  const first = ask();
  const others = [ask(), ask(), ask()];
  expect(begun.length).toBe(1);
  begun[0]?.done();
  await first;
  await expect.poll(() => begun.length).toBe(2);
  begun[1]?.done();
  await Promise.all(others);
  expect(begun.length).toBe(2);
  void ask();
  expect(begun.length).toBe(3);
});

it("is done again after it failed", async () => {
  const { begun, ask } = deed();
  const first = ask();
  const second = ask();
  begun[0]?.fail();
  await expect(first).rejects.toThrow("failed");
  await expect.poll(() => begun.length).toBe(2);
  begun[1]?.done();
  await second;
  expect(begun.length).toBe(2);
});
