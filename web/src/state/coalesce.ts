// Combines overlapping requests for the same refresh.

/** Wraps a task so that at most one call runs and at most one more waits. All callers during a run share the waiting call. */
export function coalesce(task: () => Promise<void>): () => Promise<void> {
  let current: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  function request(): Promise<void> {
    if (!current) return (current = task().finally(() => (current = null)));
    next ??= current.then(runNext, runNext);
    return next;
  }
  function runNext(): Promise<void> {
    next = null;
    return request();
  }
  return request;
}
