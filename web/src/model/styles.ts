// The policy of the page allows styles from its own files and from the script's own style objects, but no `<style>` with
// text. The terminal makes such elements; here they become style objects instead, so that the policy can stay strict.

/** Runs something that makes `<style>` elements; what it writes into them, now or later, becomes a style object. */
export function withoutInlineStyles(deed: () => void): void {
  const create = document.createElement;
  document.createElement = function (this: Document, name: string, options?: ElementCreationOptions): HTMLElement {
    // Even an empty `<style>` is against the policy, so another element that is never shown takes its place.
    return name.toLowerCase() === "style" ? redirect(create.call(this, "template")) : create.call(this, name, options);
  } as typeof document.createElement;
  try {
    deed();
  } finally {
    document.createElement = create;
  }
}

function redirect(element: HTMLElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  const remove = element.remove.bind(element);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text), get: () => "" });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
    remove();
  };
  return element;
}
