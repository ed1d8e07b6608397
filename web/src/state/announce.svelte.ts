// The text of the page's one live region, which screen readers read aloud.

const region = $state({ text: "" });

/** Lets screen readers read a text. */
export function announce(text: string): void {
  region.text = text;
}

/** The last announcement. */
export function announcement(): string {
  return region.text;
}
