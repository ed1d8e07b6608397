import { expect, it, vi } from "vitest";
import { SESSIONS_AT_A_TIME, type SessionLine } from "../protocol/http";
import { House, inPlace } from "./house.svelte";

const lines = (...ids: string[]): SessionLine[] => ids.map((id) => ({ id, title: "", preview: "", message_count: 0, created: "", updated: "" }));
const ids = (of: SessionLine[]): string => of.map(({ id }) => id).join(" ");

it("leaves lines where they were, and puts new ones first", () => {
  expect(ids(inPlace(lines("c", "new", "a", "newer", "b"), lines("a", "b", "c")))).toBe("new newer a b c");
});

it("lets go of what is gone", () => {
  expect(ids(inPlace(lines("c", "a"), lines("a", "b", "c")))).toBe("a c");
});

it("offers more only if there is more", async () => {
  let all = lines(...Array.from({ length: 2 * SESSIONS_AT_A_TIME }, (_, index) => `s${index}`));
  vi.stubGlobal("localStorage", { getItem: () => null });
  vi.stubGlobal("fetch", async (path: string) => {
    const asked = new URLSearchParams(path.split("?")[1]);
    const offset = Number(asked.get("offset"));
    return Response.json(all.slice(offset, offset + Number(asked.get("limit"))));
  });
  const house = new House(() => undefined);
  await house.look();
  expect([house.lines.length, house.hasMore]).toEqual([SESSIONS_AT_A_TIME, true]);
  house.more();
  await house.look();
  expect([ids(house.lines), house.hasMore]).toEqual([ids(all), false]);
  all = all.slice(0, SESSIONS_AT_A_TIME);
  await house.look();
  expect([house.lines.length, house.hasMore]).toEqual([SESSIONS_AT_A_TIME, false]);
  vi.unstubAllGlobals();
});

it("lists a session once that moves to the next page while the pages are fetched", async () => {
  let all = lines(...Array.from({ length: 2 * SESSIONS_AT_A_TIME }, (_, index) => `s${index}`));
  vi.stubGlobal("localStorage", { getItem: () => null });
  vi.stubGlobal("fetch", async (path: string) => {
    const asked = new URLSearchParams(path.split("?")[1]);
    const offset = Number(asked.get("offset"));
    const page = all.slice(offset, offset + Number(asked.get("limit")));
    all = [...lines(`new${offset}`), ...all];
    return Response.json(page);
  });
  const house = new House(() => undefined);
  house.more();
  await house.look();
  expect(new Set(house.lines.map(({ id }) => id)).size).toBe(house.lines.length);
  vi.unstubAllGlobals();
});
