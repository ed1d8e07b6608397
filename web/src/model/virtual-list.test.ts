import { expect, it } from "vitest";
import { RowHeights } from "./virtual-list";

const ids = Array.from({ length: 1000 }, (_, index) => `t${index}`);

it("draws the rows on the screen and a margin", () => {
  const slice = new RowHeights(() => 100).slice(ids, 5_000, 5_800, 200);
  expect(slice).toEqual({ first: 48, end: 60, above: 4_800, below: 94_000 });
});

it("keeps the total height the same at every scroll position", () => {
  const heights = new RowHeights(() => 100);
  heights.setMeasured("t3", 250);
  for (const top of [0, 90, 340, 4_321, 99_950]) {
    const { first, end, above, below } = heights.slice(ids, top, top + 800, 300);
    expect(above + heights.total(ids.slice(first, end)) + below).toBe(100_150);
  }
});

it("reports by how much a measured height differs from the assumed one", () => {
  const heights = new RowHeights(() => 100);
  expect(heights.isMeasured("t1")).toBe(false);
  expect(heights.setMeasured("t1", 130)).toBe(30);
  expect(heights.setMeasured("t1", 120)).toBe(-10);
  expect(heights.isMeasured("t1")).toBe(true);
  heights.clear();
  expect(heights.of("t1")).toBe(100);
});

it("draws the last rows at the end, and none of an empty list", () => {
  const heights = new RowHeights(() => 100);
  expect(heights.slice(ids, 99_200, 100_000, 0).end).toBe(1000);
  expect(heights.slice([], 0, 800, 900)).toEqual({ first: 0, end: 0, above: 0, below: 0 });
});
