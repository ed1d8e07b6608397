import { expect, it } from "vitest";
import { applyFrames, emptyConversation } from "./conversation";
import { event } from "./fixtures";
import type { Turn } from "./turn";
import { MAX_BARS, waterfall } from "./waterfall";

/** A turn with this many steps of 10 ms. */
function turnWithSteps(count: number): Turn {
  const frames = [event("r", 1, "run.started", { input: { text: "x" } })];
  for (let index = 0; index < count; index++) {
    frames.push(event("r", 2 + index * 2, "step.started", { step_id: `s${index}`, title: `step ${index}` }));
    frames.push(event("r", 3 + index * 2, "step.completed", { step_id: `s${index}`, duration_ms: 10 }));
  }
  return applyFrames(emptyConversation(), frames).turns[0] as Turn;
}

it("has a bar for each step, placed within the run", () => {
  const turn = { ...turnWithSteps(2), durationMs: 50 };
  const bars = waterfall(turn, 0);
  expect(bars.map(({ label, durationMs }) => [label, durationMs])).toEqual([["step 0", 10], ["step 1", 10]]);
  expect(bars[0]?.from).toBeCloseTo(0.2);
  expect(bars[0]?.to).toBeCloseTo(0.4);
  expect(bars[1]?.from).toBeCloseTo(0.6);
});

it("extends a running step up to now", () => {
  const turn = turnWithSteps(0);
  const running = applyFrames({ ...emptyConversation(), turns: [turn] }, [event("r", 2, "step.started", { step_id: "s", title: "open" })]).turns[0] as Turn;
  const bars = waterfall(running, running.startedAt + 1_000);
  expect(bars[0]?.to).toBeCloseTo(1);
});

it("shows at most MAX_BARS bars", () => {
  expect(waterfall({ ...turnWithSteps(MAX_BARS + 30), durationMs: 5_000 }, 0).length).toBe(MAX_BARS);
});
