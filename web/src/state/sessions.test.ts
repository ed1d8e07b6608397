import { expect, it, vi } from "vitest";
import { SESSIONS_PER_PAGE, type SessionSummary } from "../protocol/http";
import { keepOrder, Sessions } from "./sessions.svelte";

const summaries = (...ids: string[]): SessionSummary[] => ids.map((id) => ({ id, title: "", preview: "", message_count: 0, created: "", updated: "" }));
const ids = (of: SessionSummary[]): string => of.map(({ id }) => id).join(" ");

it("keeps the order of known rows, and puts new rows first", () => {
  expect(ids(keepOrder(summaries("c", "new", "a", "newer", "b"), summaries("a", "b", "c")))).toBe("new newer a b c");
});

it("drops rows that are gone", () => {
  expect(ids(keepOrder(summaries("c", "a"), summaries("a", "b", "c")))).toBe("a c");
});

it("offers more only if there are more sessions", async () => {
  let all = summaries(...Array.from({ length: 2 * SESSIONS_PER_PAGE }, (_, index) => `s${index}`));
  vi.stubGlobal("localStorage", { getItem: () => null });
  vi.stubGlobal("fetch", async (path: string) => {
    const query = new URLSearchParams(path.split("?")[1]);
    const offset = Number(query.get("offset"));
    return Response.json(all.slice(offset, offset + Number(query.get("limit"))));
  });
  const sessions = new Sessions(() => undefined);
  await sessions.refresh();
  expect([sessions.rows.length, sessions.hasMore]).toEqual([SESSIONS_PER_PAGE, true]);
  sessions.showMore();
  await sessions.refresh();
  expect([ids(sessions.rows), sessions.hasMore]).toEqual([ids(all), false]);
  all = all.slice(0, SESSIONS_PER_PAGE);
  await sessions.refresh();
  expect([sessions.rows.length, sessions.hasMore]).toEqual([SESSIONS_PER_PAGE, false]);
  vi.unstubAllGlobals();
});

it("lists a session once if it moves to the next page while the pages are loaded", async () => {
  let all = summaries(...Array.from({ length: 2 * SESSIONS_PER_PAGE }, (_, index) => `s${index}`));
  vi.stubGlobal("localStorage", { getItem: () => null });
  vi.stubGlobal("fetch", async (path: string) => {
    const query = new URLSearchParams(path.split("?")[1]);
    const offset = Number(query.get("offset"));
    const page = all.slice(offset, offset + Number(query.get("limit")));
    all = [...summaries(`new${offset}`), ...all];
    return Response.json(page);
  });
  const sessions = new Sessions(() => undefined);
  sessions.showMore();
  await sessions.refresh();
  expect(new Set(sessions.rows.map(({ id }) => id)).size).toBe(sessions.rows.length);
  vi.unstubAllGlobals();
});
