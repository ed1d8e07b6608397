// The geometry of the usage plot: bars and ticks from days, in pixels.
import type { UsageDay } from "../protocol/http";

/** What can be plotted. */
export const measures = ["tokens", "cost", "runs"] as const;

/** One of them. */
export type Measure = (typeof measures)[number];

/** A piece of a bar, drawn from the bottom up. */
export interface Piece {
  name: string;
  y: number;
  height: number;
}

/** A day as a bar. */
export interface DayBar {
  date: string;
  value: number;
  x: number;
  width: number;
  gap: number;
  parts: Piece[];
}

/** A plot that can be drawn. */
export interface Plot {
  top: number;
  bars: DayBar[];
  ticks: { value: number; y: number }[];
  labels: { date: string; x: number }[];
}

/** Room for the words below the bars. */
const FOOT = 22;
/** Room above the highest bar. */
const HEAD = 18;
/** The room that a label below needs. */
const LABEL = 70;
/** Room at the left for the numbers. */
const LEFT = 52;

/** Lays the days out. */
export function plot(days: readonly UsageDay[], measure: Measure, width: number, height: number): Plot {
  const values = days.map((day) => pieces(day, measure));
  const top = roundUp(Math.max(1, ...values.map(total)));
  const floor = height - FOOT;
  const scale = (floor - HEAD) / top;
  const room = (width - LEFT) / Math.max(1, days.length);
  const gap = Math.min(8, room * 0.3);
  const bars = days.map((day, index) => {
    let y = floor;
    const parts = (values[index] ?? []).map(({ name, value }) => {
      const high = value > 0 ? Math.max(1, value * scale) : 0;
      y -= high;
      return { name, y, height: high };
    });
    return { date: day.date, value: total(values[index] ?? []), x: LEFT + index * room + gap / 2, width: room - gap, gap, parts };
  });
  const ticks = [0, top / 2, top].map((value) => ({ value, y: floor - value * scale }));
  const every = Math.max(1, Math.ceil(LABEL / room));
  const labels = bars.filter((_, index) => (bars.length - 1 - index) % every === 0).map(({ date, x, width: wide }) => ({ date, x: Math.min(x + wide / 2, width - 20) }));
  return { top, bars, ticks, labels };
}

/** The next number that reads well, also when it is halved. */
export function roundUp(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 6, 8, 10].map((step) => step * unit).find((step) => step >= value) ?? value;
}

function pieces(day: UsageDay, measure: Measure): { name: string; value: number }[] {
  if (measure === "cost") return [{ name: "cost", value: day.cost_micros }];
  if (measure === "runs") return [{ name: "failed", value: day.failed }, { name: "runs", value: Math.max(0, day.runs - day.failed) }];
  return [{ name: "output", value: day.output_tokens }, { name: "input", value: day.input_tokens }];
}

function total(parts: readonly { value: number }[]): number {
  return parts.reduce((sum, { value }) => sum + value, 0);
}
