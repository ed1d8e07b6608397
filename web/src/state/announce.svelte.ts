// What a screen reader is told: one live region for the whole page.

const region = $state({ text: "" });

/** Says something to those who listen. */
export function announce(text: string): void {
  region.text = text;
}

/** What was said last. */
export function announced(): string {
  return region.text;
}
