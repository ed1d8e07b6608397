// The bars of the waterfall chart: one for each step and tool call of a run, as fractions of its duration.
import type { RunWork, Turn, WorkStatus } from "./turn";

/** A bar of the chart; `from` and `to` lie between 0 and 1. `depth` is 0 for the run itself and grows with each subagent. */
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

/** The chart of a long run shows only this many bars, the longest. */
export const MAX_BARS = 40;

/** The bars of a turn. What still runs ends at `now`, in milliseconds. */
export function waterfall(turn: Turn, now: number): Bar[] {
  const total = Math.max(1, turn.durationMs ?? now - turn.startedAt);
  const bars: Bar[] = [];
  collect(turn.work, 0);
  if (bars.length <= MAX_BARS) return bars;
  const shortest = bars.map(({ durationMs }) => durationMs).sort((a, b) => b - a)[MAX_BARS - 1] ?? 0;
  return bars.filter(({ durationMs }) => durationMs >= shortest).slice(0, MAX_BARS);

  function collect(work: RunWork, depth: number): void {
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
    const from = clamp((work.startedAt - turn.startedAt) / total);
    bars.push({ id, label, depth, from, to: clamp(from + durationMs / total), durationMs, status: work.status, isTool });
  }
}

function clamp(share: number): number {
  return Math.min(1, Math.max(0, share));
}
