import { expect, it } from "vitest";
import { roundUp, usagePlot } from "./usage-plot";

const day = (date: string, runs: number, failed: number) => ({ date, runs, failed, input_tokens: 0, output_tokens: 0, cache_read_tokens: 0, cost_micros: 0 });

it("scales the bars to the height of the plot", () => {
  const { top, bars } = usagePlot([day("2026-01-01", 10, 4), day("2026-01-02", 0, 0)], "runs", 400, 240);
  expect(top).toBe(10);
  const heights = bars.map(({ parts }) => parts.reduce((sum, part) => sum + part.height, 0));
  expect(heights).toEqual([200, 0]);
  expect(bars[0]?.parts.map(({ name }) => name)).toEqual(["failed", "runs"]);
});

it("has ticks that read well", () => {
  expect([1, 3, 7, 12, 480, 1_001].map(roundUp)).toEqual([1, 3, 8, 20, 600, 2_000]);
});
