import { describe, expect, it } from "vitest";
import { receive, emptyConversation } from "./conversation";
import { event } from "./fixtures";
import { plot, roundUp } from "./plot";
import { MAX_BARS, waterfall } from "./waterfall";
import type { Turn } from "./turn";

describe("the waterfall", () => {
  const steps = (many: number): Turn => {
    const frames = [event("r", 1, "run.started", { input: { text: "x" } })];
    for (let index = 0; index < many; index++) {
      frames.push(event("r", 2 + index * 2, "step.started", { step_id: `s${index}`, title: `step ${index}` }));
      frames.push(event("r", 3 + index * 2, "step.completed", { step_id: `s${index}`, duration_ms: 10 }));
    }
    return receive(emptyConversation(), frames).turns[0] as Turn;
  };

  it("has a bar for each step, within the whole", () => {
    const turn = { ...steps(2), durationMs: 50 };
    const bars = waterfall(turn, 0);
    expect(bars.map(({ label, durationMs }) => [label, durationMs])).toEqual([["step 0", 10], ["step 1", 10]]);
    expect(bars[0]?.from).toBeCloseTo(0.2);
    expect(bars[0]?.to).toBeCloseTo(0.4);
    expect(bars[1]?.from).toBeCloseTo(0.6);
  });

  it("goes on as long as the run does", () => {
    const turn = steps(0);
    const open = receive({ ...emptyConversation(), turns: [turn] }, [event("r", 2, "step.started", { step_id: "s", title: "open" })]).turns[0] as Turn;
    const bars = waterfall(open, open.at + 1_000);
    expect(bars[0]?.to).toBeCloseTo(1);
  });

  it("is bounded", () => {
    expect(waterfall({ ...steps(MAX_BARS + 30), durationMs: 5_000 }, 0).length).toBe(MAX_BARS);
  });
});

describe("the plot", () => {
  const day = (date: string, runs: number, failed: number) => ({ date, runs, failed, input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cost_micros: 0 });

  it("stands on the floor and reaches the top", () => {
    const { top, bars } = plot([day("2026-01-01", 10, 4), day("2026-01-02", 0, 0)], "runs", 400, 240);
    expect(top).toBe(10);
    const heights = bars.map(({ parts }) => parts.reduce((sum, part) => sum + part.height, 0));
    expect(heights).toEqual([200, 0]);
    expect(bars[0]?.parts.map(({ name }) => name)).toEqual(["failed", "runs"]);
  });

  it("has ticks that read well", () => {
    expect([1, 3, 7, 12, 480, 1_001].map(roundUp)).toEqual([1, 3, 8, 20, 600, 2_000]);
  });
});
