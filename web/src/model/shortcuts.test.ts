import { expect, it } from "vitest";
import { altTypesLetters, type KeyPress, shortcut } from "./shortcuts";

const press = (key: string, code: string, more: Partial<KeyPress> = {}): KeyPress => ({
  key, code, altKey: false, ctrlKey: false, metaKey: false, isComposing: false, keyCode: 0, ...more,
});

it("ignores the keys of an input method", () => {
  expect(shortcut(press("Escape", "Escape"), true, false)).toBe("stop");
  expect(shortcut(press("Escape", "Escape", { isComposing: true }), true, false)).toBeNull();
  expect(shortcut(press("Escape", "Escape", { keyCode: 229 }), true, false)).toBeNull();
});

it("leaves Option to the text field on a Mac", () => {
  const hash = press("#", "Digit3", { altKey: true });
  expect(shortcut(hash, true, altTypesLetters("MacIntel"))).toBeNull();
  expect(shortcut(hash, false, altTypesLetters("MacIntel"))).toBe("terminals");
});

it("matches Alt shortcuts by the position of the key, whatever letter is on it", () => {
  expect(shortcut(press("т", "KeyN", { altKey: true }), true, altTypesLetters("Linux x86_64"))).toBe("new-chat");
  expect(shortcut(press("n", "KeyN", { altKey: true }), true, altTypesLetters("Win32"))).toBe("new-chat");
  // AltGr on Windows.
  expect(shortcut(press("n", "KeyN", { altKey: true, ctrlKey: true }), true, altTypesLetters("Win32"))).toBeNull();
});

it("leaves plain keys to the text field", () => {
  expect(shortcut(press("/", "Slash"), false, false)).toBe("focus-message");
  expect(shortcut(press("/", "Slash"), true, false)).toBeNull();
  expect(shortcut(press("k", "KeyK", { metaKey: true }), true, true)).toBe("search");
});
