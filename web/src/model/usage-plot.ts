// Lays out the usage plot: turns days into bars, ticks and labels, in pixels.
import type { UsageDay } from "../protocol/http";

/** The measures that the plot can show. */
export const measures = ["tokens", "cost", "runs"] as const;

export type Measure = (typeof measures)[number];

/** A part of a stacked bar, drawn from the bottom up. `name` is its CSS class. */
export interface BarPart {
  name: string;
  y: number;
  height: number;
}

/** The bar of one day. */
export interface DayBar {
  date: string;
  value: number;
  x: number;
  width: number;
  gap: number;
  parts: BarPart[];
}

/** All that the view draws. `top` is the value at the top of the plot. */
export interface Plot {
  top: number;
  bars: DayBar[];
  ticks: { value: number; y: number }[];
  labels: { date: string; x: number }[];
}

/** The height of the labels below the bars. */
const FOOT_HEIGHT = 22;
/** The free space above the highest bar. */
const HEAD_HEIGHT = 18;
/** The width that a label needs. */
const LABEL_WIDTH = 70;
/** The width of the numbers at the left. */
const LEFT_WIDTH = 52;

/** Lays out one bar per day. */
export function usagePlot(days: readonly UsageDay[], measure: Measure, width: number, height: number): Plot {
  const values = days.map((day) => partsOf(day, measure));
  const top = roundUp(Math.max(1, ...values.map(total)));
  const floor = height - FOOT_HEIGHT;
  const scale = (floor - HEAD_HEIGHT) / top;
  const slotWidth = (width - LEFT_WIDTH) / Math.max(1, days.length);
  const gap = Math.min(8, slotWidth * 0.3);
  const bars = days.map((day, index) => {
    let y = floor;
    const parts = (values[index] ?? []).map(({ name, value }) => {
      const partHeight = value > 0 ? Math.max(1, value * scale) : 0;
      y -= partHeight;
      return { name, y, height: partHeight };
    });
    return { date: day.date, value: total(values[index] ?? []), x: LEFT_WIDTH + index * slotWidth + gap / 2, width: slotWidth - gap, gap, parts };
  });
  const ticks = [0, top / 2, top].map((value) => ({ value, y: floor - value * scale }));
  const every = Math.max(1, Math.ceil(LABEL_WIDTH / slotWidth));
  const labels = bars.filter((_, index) => (bars.length - 1 - index) % every === 0).map(({ date, x, width: barWidth }) => ({ date, x: Math.min(x + barWidth / 2, width - 20) }));
  return { top, bars, ticks, labels };
}

/** The next larger number that reads well, as does half of it. */
export function roundUp(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * unit).find((step) => step >= value) ?? value;
}

function partsOf(day: UsageDay, measure: Measure): { name: string; value: number }[] {
  if (measure === "cost") return [{ name: "cost", value: day.cost_micros }];
  if (measure === "runs") return [{ name: "failed", value: day.failed }, { name: "runs", value: Math.max(0, day.runs - day.failed) }];
  return [{ name: "output", value: day.output_tokens }, { name: "input", value: day.input_tokens }];
}

function total(parts: readonly { value: number }[]): number {
  return parts.reduce((sum, { value }) => sum + value, 0);
}
