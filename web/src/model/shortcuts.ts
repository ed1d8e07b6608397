// Maps key presses to actions of the page. The page decides whether an action is possible right now.

/** An action that a key can trigger. */
export type Action = "stop" | "search" | "new-chat" | "toggle-work" | "chat" | "sessions" | "terminals" | "usage" | "show-shortcuts" | "focus-message";

/** The parts of a keyboard event that decide the action. */
export type KeyPress = Pick<KeyboardEvent, "key" | "code" | "altKey" | "ctrlKey" | "metaKey" | "isComposing" | "keyCode">;

const ALT_ACTIONS: Record<string, Action> = { KeyN: "new-chat", KeyO: "toggle-work", Digit1: "chat", Digit2: "sessions", Digit3: "terminals", Digit4: "usage" };

/** Whether an input method consumes the key to compose a letter. Some browsers report that only by `keyCode` 229. */
export function isComposing(press: KeyPress): boolean {
  return press.isComposing || press.keyCode === 229;
}

/** Whether Alt types letters on this platform, as Option does on a Mac. */
export function altTypesLetters(platform: string): boolean {
  return /^(Mac|iP)/.test(platform);
}

/** The action of a key press, or null. In a text field, keys that type a letter have no action. */
export function shortcut(press: KeyPress, isInTextField: boolean, doesAltType: boolean): Action | null {
  const { key, code, altKey, ctrlKey, metaKey } = press;
  if (isComposing(press)) return null;
  if (key === "Escape") return "stop";
  if ((ctrlKey || metaKey) && code === "KeyK") return "search";
  if (altKey && !ctrlKey) return isInTextField && doesAltType ? null : (ALT_ACTIONS[code] ?? null);
  if (isInTextField || ctrlKey || metaKey || altKey) return null;
  return key === "?" ? "show-shortcuts" : key === "/" ? "focus-message" : null;
}
