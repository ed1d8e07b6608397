// Which runs are unfolded. Kept apart from the rows, which come and go while one scrolls.
import { SvelteSet } from "svelte/reactivity";

/** The turns whose work is shown. */
export const folds = new SvelteSet<string>();

/** Unfolds what is folded, and the other way round. */
export function toggleFold(id: string): void {
  if (!folds.delete(id)) folds.add(id);
}
