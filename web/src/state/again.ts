// Asking again for what may have changed, without asking more and more.

/** Does something one at a time: who asks while it is being done waits for one more, and so does everybody else who asks until that begins. */
export function oneAtATime(deed: () => Promise<void>): () => Promise<void> {
  let current: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  function ask(): Promise<void> {
    if (!current) return (current = deed().finally(() => (current = null)));
    next ??= current.then(begin, begin);
    return next;
  }
  function begin(): Promise<void> {
    next = null;
    return ask();
  }
  return ask;
}
