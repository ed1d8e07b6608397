import { expect, it } from "vitest";
import { formatAge, formatBytes, formatCount, formatDuration, formatMoney, formatNames, MAX_LISTED_NAMES } from "./format";

it("formats durations, sizes, numbers and money", () => {
  expect([8, 1234, 34_000, 200_000, 7_300_000].map(formatDuration)).toEqual(["8 ms", "1.2 s", "34 s", "3 min 20 s", "2 h 1 min"]);
  expect([512, 12_345, 26_214_400].map(formatBytes)).toEqual(["512 B", "12 KB", "25.0 MB"]);
  expect([999, 12_345, 123_456, 1_234_567].map(formatCount)).toEqual(["999", "12,345", "123 k", "1.2 M"]);
  expect([0, 12_345, 2_500_000].map(formatMoney)).toEqual(["$0.00", "$0.012", "$2.50"]);
});

it("formats the age of an event", () => {
  const now = Date.parse("2026-03-30T12:00:00Z");
  expect([1, 300, 7_200, 172_800].map((seconds) => formatAge(now - seconds * 1000, now))).toEqual(["just now", "5 min ago", "2 h ago", "2 d ago"]);
});

it("lists some names and counts the others", () => {
  const names = Array.from({ length: MAX_LISTED_NAMES + 3 }, (_, index) => `${index}.txt`);
  expect(formatNames(names.slice(0, 2))).toBe("“0.txt”, “1.txt”");
  expect(formatNames(names.slice(0, MAX_LISTED_NAMES))).not.toContain("more");
  expect(formatNames(names)).toMatch(/“7\.txt” and 3 more$/);
});
