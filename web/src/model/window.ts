// Which rows of a long list are on the screen. Rows have any height; one that was never measured counts as its estimate,
// which must not change: what is above the screen would jump.

/** Rows that should be in the document, and the room that the others take above and below. */
export interface Slice {
  first: number;
  end: number;
  above: number;
  below: number;
}

/** The heights that were measured. */
export class Heights {
  private readonly measured = new Map<string, number>();

  constructor(private readonly estimate: (id: string) => number) {}

  /** How high a row is, as far as is known. */
  of(id: string): number {
    return this.measured.get(id) ?? this.estimate(id);
  }

  /** Whether a row was measured. */
  knows(id: string): boolean {
    return this.measured.has(id);
  }

  /** Remembers a height, and tells by how much it differs from what was believed. */
  learn(id: string, height: number): number {
    const before = this.of(id);
    this.measured.set(id, height);
    return height - before;
  }

  /** Forgets all, since the width has changed. */
  clear(): void {
    this.measured.clear();
  }

  /** The room that some rows take. */
  total(ids: readonly string[]): number {
    return ids.reduce((sum, id) => sum + this.of(id), 0);
  }

  /** The rows between two heights, with some more on both sides. */
  slice(ids: readonly string[], top: number, bottom: number, margin: number): Slice {
    let first = 0;
    let above = 0;
    while (first < ids.length) {
      const height = this.of(ids[first] as string);
      if (above + height > top - margin) break;
      above += height;
      first += 1;
    }
    let end = first;
    let reached = above;
    while (end < ids.length && reached < bottom + margin) {
      reached += this.of(ids[end] as string);
      end += 1;
    }
    return { first, end, above, below: this.total(ids.slice(end)) };
  }
}
