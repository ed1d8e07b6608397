import { expect, it } from "vitest";
import { Heights } from "./window";

const ids = Array.from({ length: 1000 }, (_, index) => `t${index}`);

it("draws what is on the screen, with a margin", () => {
  const slice = new Heights(() => 100).slice(ids, 5_000, 5_800, 200);
  expect(slice).toEqual({ first: 48, end: 60, above: 4_800, below: 94_000 });
});

it("keeps the whole room the same, wherever one is", () => {
  const heights = new Heights(() => 100);
  heights.learn("t3", 250);
  for (const top of [0, 90, 340, 4_321, 99_950]) {
    const { first, end, above, below } = heights.slice(ids, top, top + 800, 300);
    expect(above + heights.total(ids.slice(first, end)) + below).toBe(100_150);
  }
});

it("tells by how much a height differs from what was believed", () => {
  const heights = new Heights(() => 100);
  expect(heights.knows("t1")).toBe(false);
  expect(heights.learn("t1", 130)).toBe(30);
  expect(heights.learn("t1", 120)).toBe(-10);
  expect(heights.knows("t1")).toBe(true);
  heights.clear();
  expect(heights.of("t1")).toBe(100);
});

it("draws the last rows at the end, and nothing of an empty list", () => {
  const heights = new Heights(() => 100);
  expect(heights.slice(ids, 99_200, 100_000, 0).end).toBe(1000);
  expect(heights.slice([], 0, 800, 900)).toEqual({ first: 0, end: 0, above: 0, below: 0 });
});
