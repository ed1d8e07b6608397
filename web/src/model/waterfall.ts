// Where the time of a run went: one bar for each step and tool, as shares of the whole.
import type { Turn, Work, WorkStatus } from "./turn";

/** A bar of the picture; `from` and `to` lie between 0 and 1. */
export interface Bar {
  id: string;
  label: string;
  depth: number;
  from: number;
  to: number;
  durationMs: number;
  status: WorkStatus;
  isTool: boolean;
}

/** Of a long run the longest bars are shown, this many. */
export const MAX_BARS = 40;

/** The bars of a turn. `now` is where what still runs ends. */
export function waterfall(turn: Turn, now: number): Bar[] {
  const begin = turn.at;
  const whole = Math.max(1, turn.durationMs ?? now - begin);
  const bars: Bar[] = [];
  collect(turn.work, 0);
  if (bars.length <= MAX_BARS) return bars;
  const shortest = bars.map(({ durationMs }) => durationMs).sort((a, b) => b - a)[MAX_BARS - 1] ?? 0;
  return bars.filter(({ durationMs }) => durationMs >= shortest).slice(0, MAX_BARS);

  function collect(work: Work, depth: number): void {
    for (const step of work.steps) {
      const tool = step.tools.length === 1 ? step.tools[0] : undefined;
      add(step.id + work.runId, tool?.name ?? step.title, depth, step, tool !== undefined);
      if (!tool) for (const call of step.tools) add(call.id, call.name, depth + 1, call, true);
      if (step.work) collect(step.work, depth + 1);
    }
  }

  function add(
    id: string,
    label: string,
    depth: number,
    work: { startedAt: number; durationMs: number | null; status: WorkStatus },
    isTool: boolean,
  ): void {
    const durationMs = work.durationMs ?? Math.max(0, now - work.startedAt);
    const from = clamp((work.startedAt - begin) / whole);
    bars.push({ id, label, depth, from, to: clamp(from + durationMs / whole), durationMs, status: work.status, isTool });
  }
}

function clamp(share: number): number {
  return Math.min(1, Math.max(0, share));
}
