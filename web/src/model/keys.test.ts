import { expect, it } from "vitest";
import { altWrites, type Pressed, wish } from "./keys";

const press = (key: string, code: string, more: Partial<Pressed> = {}): Pressed => ({
  key, code, altKey: false, ctrlKey: false, metaKey: false, isComposing: false, keyCode: 0, ...more,
});

it("leaves the keys of an input method alone", () => {
  expect(wish(press("Escape", "Escape"), true, false)).toBe("stop");
  expect(wish(press("Escape", "Escape", { isComposing: true }), true, false)).toBeNull();
  expect(wish(press("Escape", "Escape", { keyCode: 229 }), true, false)).toBeNull();
});

it("takes no letter from who writes with Option", () => {
  const hash = press("#", "Digit3", { altKey: true });
  expect(wish(hash, true, altWrites("MacIntel"))).toBeNull();
  expect(wish(hash, false, altWrites("MacIntel"))).toBe("terminals");
});

it("knows Alt by the place of the key where it writes nothing, whatever the letters on it", () => {
  expect(wish(press("т", "KeyN", { altKey: true }), true, altWrites("Linux x86_64"))).toBe("fresh");
  expect(wish(press("n", "KeyN", { altKey: true }), true, altWrites("Win32"))).toBe("fresh");
  // AltGr, as Windows has it.
  expect(wish(press("n", "KeyN", { altKey: true, ctrlKey: true }), true, altWrites("Win32"))).toBeNull();
});

it("lets plain keys be written", () => {
  expect(wish(press("/", "Slash"), false, false)).toBe("write");
  expect(wish(press("/", "Slash"), true, false)).toBeNull();
  expect(wish(press("k", "KeyK", { metaKey: true }), true, true)).toBe("search");
});
