// What a pressed key asks of the page, wherever one is. What can be done right now is not decided here.

/** What a key can ask for. */
export type Wish = "stop" | "search" | "fresh" | "fold" | "chat" | "house" | "terminals" | "usage" | "shortcuts" | "write";

/** What is looked at of a key that was pressed. */
export type Pressed = Pick<KeyboardEvent, "key" | "code" | "altKey" | "ctrlKey" | "metaKey" | "isComposing" | "keyCode">;

const WITH_ALT: Record<string, Wish> = { KeyN: "fresh", KeyO: "fold", Digit1: "chat", Digit2: "house", Digit3: "terminals", Digit4: "usage" };

/** Whether a key belongs to an input method, which makes one letter of several keys. Some browsers say so by the number alone. */
export function isComposed({ isComposing, keyCode }: Pressed): boolean {
  return isComposing || keyCode === 229;
}

/** Whether the Alt key of this system makes letters: Option on a Mac does. */
export function altWrites(platform: string): boolean {
  return /^(Mac|iP)/.test(platform);
}

/** What a key asks for. While one writes, a key that makes a letter only makes it. */
export function wish(pressed: Pressed, isWriting: boolean, isAltLetter: boolean): Wish | null {
  const { key, code, altKey, ctrlKey, metaKey } = pressed;
  if (isComposed(pressed)) return null;
  if (key === "Escape") return "stop";
  if ((ctrlKey || metaKey) && code === "KeyK") return "search";
  if (altKey && !ctrlKey) return isWriting && isAltLetter ? null : (WITH_ALT[code] ?? null);
  if (isWriting || ctrlKey || metaKey || altKey) return null;
  return key === "?" ? "shortcuts" : key === "/" ? "write" : null;
}
