import { expect, it } from "vitest";
import type { SessionLine } from "../protocol/http";
import { inPlace } from "./house.svelte";

const lines = (...ids: string[]): SessionLine[] => ids.map((id) => ({ id, title: "", preview: "", message_count: 0, created: "", updated: "" }));
const ids = (of: SessionLine[]): string => of.map(({ id }) => id).join(" ");

it("leaves lines where they were, and puts new ones first", () => {
  expect(ids(inPlace(lines("c", "new", "a", "newer", "b"), lines("a", "b", "c")))).toBe("new newer a b c");
});

it("lets go of what is gone", () => {
  expect(ids(inPlace(lines("c", "a"), lines("a", "b", "c")))).toBe("a c");
});
