// Computes which rows of a long list have to be in the document. Rows differ in height. The estimate of a row that was not
// measured yet must never change, or the rows above the screen would jump.
import type { Turn } from "./turn";

/** The rows to draw (`first` up to, not including, `end`), and the height in pixels of the rows left out above and below. */
export interface Slice {
  first: number;
  end: number;
  above: number;
  below: number;
}

/** The measured or estimated height of each row, in pixels. */
export class RowHeights {
  private readonly measured = new Map<string, number>();

  constructor(private readonly estimate: (id: string) => number) {}

  /** The measured height, or else the estimate. */
  of(id: string): number {
    return this.measured.get(id) ?? this.estimate(id);
  }

  isMeasured(id: string): boolean {
    return this.measured.has(id);
  }

  /** Stores a measured height; returns its difference to the height assumed before. */
  setMeasured(id: string, height: number): number {
    const before = this.of(id);
    this.measured.set(id, height);
    return height - before;
  }

  /** Forgets all measurements; called when the width of the list changes. */
  clear(): void {
    this.measured.clear();
  }

  /** The height of these rows together. */
  total(ids: readonly string[]): number {
    return ids.reduce((sum, id) => sum + this.of(id), 0);
  }

  /** The rows between two offsets, plus `margin` pixels on both sides. */
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
    let offset = above;
    while (end < ids.length && offset < bottom + margin) {
      offset += this.of(ids[end] as string);
      end += 1;
    }
    return { first, end, above, below: this.total(ids.slice(end)) };
  }
}

/** A rough height of a turn in pixels, used until the row is measured. */
export function estimateHeight(turn: Turn): number {
  const lines = (text: string): number => Math.ceil(text.length / 80) + (text.match(/\n/g)?.length ?? 0);
  const answer = turn.parts.reduce((sum, part) => sum + (part.kind === "text" ? 24 + lines(part.text) * 26 : part.kind === "question" && part.outcome ? 40 : 120), 0);
  return 132 + lines(turn.text) * 24 + answer + (turn.media.length ? 96 : 0) + (turn.failure ? 64 : 0);
}
