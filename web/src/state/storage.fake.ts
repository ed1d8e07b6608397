// The storage of a window, for tests: what is stored, and empty before each.
import { beforeEach, vi } from "vitest";

export const stored = new Map<string, string>();

vi.stubGlobal("sessionStorage", {
  getItem: (name: string) => stored.get(name) ?? null,
  setItem: (name: string, value: string) => stored.set(name, value),
  removeItem: (name: string) => stored.delete(name),
});
beforeEach(() => stored.clear());
