// A `sessionStorage` for tests; it is emptied before each test.
import { beforeEach, vi } from "vitest";

export const stored = new Map<string, string>();

vi.stubGlobal("sessionStorage", {
  getItem: (name: string) => stored.get(name) ?? null,
  setItem: (name: string, value: string) => stored.set(name, value),
  removeItem: (name: string) => stored.delete(name),
});
beforeEach(() => stored.clear());
