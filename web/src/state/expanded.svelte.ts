// Which turns show their steps. Kept outside of the rows, because scrolling removes rows and adds them again.
import { SvelteSet } from "svelte/reactivity";

/** The ids of the turns whose steps are shown. */
export const expandedTurns = new SvelteSet<string>();

/** Shows or hides the steps of a turn. */
export function toggleExpanded(id: string): void {
  if (!expandedTurns.delete(id)) expandedTurns.add(id);
}
