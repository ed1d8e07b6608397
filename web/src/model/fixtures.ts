// Frames for tests.
import type { EventData, EventFrame, TypedFrame, TypedPayload } from "../protocol/frames";

let count = 0;

/** An event; ids sort in the order of creation. */
export function event(run: string, sequence: number, type: string, data: EventData = {}, parent: string | null = null): EventFrame {
  count += 1;
  return {
    event_id: `evt_${String(count).padStart(6, "0")}`,
    event_type: type,
    timestamp: new Date(1_700_000_000_000 + count * 10).toISOString(),
    sequence,
    session_id: "s",
    run_id: run,
    parent_run_id: parent,
    agent_id: "local",
    replay: false,
    data,
  };
}

/** All events of a run that answers a text with another. */
export function answeredRun(run: string, prompt: string, answer: string, key: string | null = null): EventFrame[] {
  return [
    event(run, 1, "run.started", { input: { text: prompt, media: [], key } }),
    event(run, 2, "message.started", { message_id: `${run}-m` }),
    event(run, 3, "message.completed", { message_id: `${run}-m`, text: answer }),
    event(run, 4, "run.completed", { duration_ms: 30 }),
  ];
}

/** A typed frame without envelope. */
export function typedFrame(type: string, payload: TypedPayload): TypedFrame {
  return { type, payload };
}
