// The Content-Security-Policy of the page allows style files and `CSSStyleSheet` objects, but no inline `<style>` elements. The
// terminal library creates such elements. This module turns them into `CSSStyleSheet` objects, so that the policy can stay strict.

/** Runs a task that creates `<style>` elements. Their text, written now or later, goes into `CSSStyleSheet` objects. */
export function withoutInlineStyles(task: () => void): void {
  const create = document.createElement;
  document.createElement = function (this: Document, name: string, options?: ElementCreationOptions): HTMLElement {
    // The policy forbids even an empty `<style>`, so the task gets an invisible `<template>` instead.
    return name.toLowerCase() === "style" ? redirectToSheet(create.call(this, "template")) : create.call(this, name, options);
  } as typeof document.createElement;
  try {
    task();
  } finally {
    document.createElement = create;
  }
}

function redirectToSheet(element: HTMLElement): HTMLElement {
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
