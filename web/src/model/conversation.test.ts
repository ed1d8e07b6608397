import { describe, expect, it } from "vitest";
import { activeTurn, type Conversation, emptyConversation, interrupted, prepend, receive, say, withdraw } from "./conversation";
import { OUTPUT_CHARS } from "./events";
import { answered, event, typed } from "./fixtures";
import type { TextPart, Turn } from "./turn";

const none = emptyConversation();
const texts = ({ turns }: Conversation): string[] => turns.map(answer);
const answer = ({ parts }: Turn): string => parts.map((part) => (part as TextPart).text).join("|");

describe("what was said", () => {
  it("is a turn with its answer", () => {
    const { turns, last } = receive(none, answered("r1", "hello", "hi"));
    expect(turns).toHaveLength(1);
    expect(turns[0]).toMatchObject({ text: "hello", status: "completed", durationMs: 30 });
    expect(texts({ ...none, turns })).toEqual(["hi"]);
    expect(last).not.toBe("");
  });

  it("is shown once, however often it is told", () => {
    const events = answered("r1", "hello", "hi");
    const once = receive(none, events);
    expect(texts(receive(once, events))).toEqual(["hi"]);
    expect(receive(once, events).turns[0]).toBe(once.turns[0]);
  });

  it("leaves other turns the values that they were", () => {
    const first = receive(none, answered("r1", "a", "b"));
    const second = receive(first, answered("r2", "c", "d"));
    expect(second.turns[0]).toBe(first.turns[0]);
    expect(first.turns).toHaveLength(1);
  });

  it("takes the place of what was sent, under the same id", () => {
    const sent = say(none, { content: "hello", key: "k1" }, 5);
    expect(sent.turns[0]).toMatchObject({ id: "k1", status: "pending" });
    const { turns } = receive(sent, answered("r1", "hello", "hi", "k1"));
    expect(turns).toHaveLength(1);
    expect(turns[0]).toMatchObject({ id: "k1", runId: "r1", status: "completed" });
  });

  it("goes before what still waits", () => {
    const sent = say(none, { content: "mine", key: "k1" }, 5);
    const { turns } = receive(sent, answered("r1", "theirs", "hi"));
    expect(turns.map(({ text }) => text)).toEqual(["theirs", "mine"]);
  });
});

describe("the queue", () => {
  it("knows a message of ours by its key, whatever others say", () => {
    const sent = say(receive(none, [event("r1", 1, "run.started", { input: { text: "long" } })]), { content: "next", key: "k2" }, 5);
    const foreign = receive(sent, [typed("run.queued", { run_id: "r3", text: "next", key: null })]);
    expect(foreign.turns.map(({ id, status }) => [id, status])).toEqual([["r1", "running"], ["k2", "pending"], ["r3", "queued"]]);
    const queued = receive(sent, [typed("run.queued", { run_id: "r2", text: "next\n[file: a]", key: "k2" })]);
    expect(queued.turns.map(({ status }) => status)).toEqual(["running", "queued"]);
    const begun = receive(queued, answered("r2", "next", "done", "k2"));
    expect(begun.turns.map(({ id, status }) => [id, status])).toEqual([["r1", "running"], ["k2", "completed"]]);
  });

  it("shows what somebody else put there, and takes it away again", () => {
    const queued = receive(none, [typed("run.queued", { run_id: "r2", text: "next" }), typed("run.queued", { run_id: "r2", text: "next" })]);
    expect(queued.turns).toHaveLength(1);
    expect(receive(queued, [typed("run.unqueued", { run_ids: ["r2"] })]).turns).toHaveLength(0);
  });
});

describe("a refusal", () => {
  const sent = say(none, { content: "x", key: "k1" }, 5);

  it("fails the message, and is not remembered as an event of the log", () => {
    const refused = receive(sent, [
      event("r9", 1, "error.raised", { scope: "run", code: "AGENT_NOT_FOUND", input: { key: "k1" } }),
      event("r9", 2, "run.failed", { error_code: "AGENT_NOT_FOUND", message: "no agent", input: { key: "k1" } }),
    ]);
    expect(refused.turns[0]).toMatchObject({ status: "failed", failure: { code: "AGENT_NOT_FOUND", message: "no agent" } });
    expect(refused.last).toBe("");
    expect(withdraw(refused, "k1").turns).toHaveLength(0);
  });

  it("by a typed error fails the message with that key only", () => {
    const other = say(sent, { content: "y", key: "k2" }, 6);
    const { turns } = receive(other, [typed("error", { code: "media_write_failed", message: "too large", key: "k2" })]);
    expect(turns.map(({ status }) => status)).toEqual(["pending", "failed"]);
  });
});

describe("a stop", () => {
  it("ends the turn, and its words are the outcome instead of an answer", () => {
    const { turns } = receive(none, [
      event("r1", 1, "run.started", { input: { text: "/wait 9" } }),
      event("r1", 2, "message.started", { message_id: "m1" }),
      event("r1", 3, "message.completed", { message_id: "m1", text: "tick" }),
      event("r1", 4, "message.completed", { message_id: "m2", text: "Stopped by user." }),
      event("r1", 5, "run.failed", { error_code: "RUN_CANCELLED", final_message_id: "m2" }),
    ]);
    expect(turns[0]).toMatchObject({ status: "stopped", failure: { message: "Stopped by user." } });
    expect(turns.map(answer)).toEqual(["tick"]);
  });
});

describe("a text that is being written", () => {
  const begun = receive(none, [
    event("r1", 1, "run.started", { input: { text: "x" } }),
    event("r1", 2, "message.started", { message_id: "m1" }),
  ]);
  const piece = (text: string) => typed("message.delta", { run_id: "r1", message_id: "m1", text });

  it("grows", () => {
    expect(texts(receive(begun, [piece("a"), piece("b")]))).toEqual(["ab"]);
    expect(activeTurn(begun)?.runId).toBe("r1");
  });

  it("is told from its beginning after a break", () => {
    const broken = interrupted(receive(begun, [piece("one two")]));
    expect(texts(broken)).toEqual(["one two"]);
    expect(texts(receive(broken, [piece("one two three"), piece(" four")]))).toEqual(["one two three four"]);
  });

  it("is not continued once it is complete", () => {
    const done = receive(begun, [event("r1", 3, "message.completed", { message_id: "m1", text: "whole" }), piece("late")]);
    expect(texts(done)).toEqual(["whole"]);
  });
});

describe("the work of a run", () => {
  const work = receive(none, [
    event("r1", 1, "run.started", { input: { text: "x" } }),
    event("r1", 2, "step.started", { step_id: "step_001", kind: "tool", title: "Using shell" }),
    event("r1", 3, "tool.called", { step_id: "step_001", tool_call_id: "c1", tool_name: "shell", arg_preview: "{}" }),
    typed("tool.output", { run_id: "r1", tool_call_id: "c1", text: "out" }),
    event("r1", 4, "tool.completed", { step_id: "step_001", tool_call_id: "c1", result_preview: "out", duration_ms: 7 }),
    event("r1", 5, "step.completed", { step_id: "step_001", duration_ms: 8 }),
    event("r1", 6, "step.started", { step_id: "r2", kind: "tool", title: "scout: look" }),
    event("r2", 1, "run.started", { input: { text: "look" } }, "r1"),
    event("r2", 2, "step.started", { step_id: "step_001", kind: "reasoning", title: "Answering" }, "r1"),
    event("r2", 3, "message.completed", { message_id: "m", text: "fine" }, "r1"),
    event("r2", 4, "run.completed", { duration_ms: 5 }, "r1"),
    event("r1", 7, "usage.recorded", { input_tokens: 5, output_tokens: 3, cost_micros: 9, model: "m" }),
    event("r1", 8, "usage.recorded", { input_tokens: 5, output_tokens: 3, cost_micros: 9, model: "m" }),
  ]);

  it("is a tree with tools and subagents", () => {
    expect(work.turns).toHaveLength(1);
    const [shell, scout] = work.turns[0]?.work.steps ?? [];
    expect(shell).toMatchObject({ status: "completed", durationMs: 8 });
    expect(shell?.tools[0]).toMatchObject({ name: "shell", output: "out", status: "completed", durationMs: 7 });
    expect(scout?.work).toMatchObject({ said: "fine", durationMs: 5 });
    expect(scout?.work?.steps[0]?.title).toBe("Answering");
    expect(work.turns.map(answer)).toEqual([""]);
  });

  it("adds up what was spent", () => {
    expect(work.turns[0]?.spent).toEqual({ input: 10, output: 6, costMicros: 18 });
  });

  it("keeps the end of a long output", () => {
    const loud = receive(work, [typed("tool.output", { run_id: "r1", tool_call_id: "c1", text: "x".repeat(OUTPUT_CHARS) + "end" })]);
    const output = loud.turns[0]?.work.steps[0]?.tools[0]?.output ?? "";
    expect(output).toHaveLength(OUTPUT_CHARS);
    expect(output.endsWith("end")).toBe(true);
  });
});

describe("older pages", () => {
  const events = ["r1", "r2", "r3"].flatMap((run) => answered(run, run, `said ${run}`));

  it("come before what is there, also when they cut a run in two", () => {
    for (let at = 1; at < events.length; at++) {
      const newest = prepend(none, events.slice(at), false);
      const whole = prepend(newest, events.slice(0, at), true);
      expect(texts(whole)).toEqual(["said r1", "said r2", "said r3"]);
      expect(whole.held).toEqual([]);
      expect(whole.last).toBe(events.at(-1)?.event_id);
    }
  });

  it("tell of the queue, but not of what has begun since", () => {
    const [started, ...rest] = answered("r4", "next", "said r4");
    const queued = typed("run.queued", { run_id: "r4", text: "next" });
    const newest = prepend(none, [...events.slice(8), queued], false);
    expect(newest.turns.map(({ status }) => status)).toEqual(["completed", "queued"]);
    const later = prepend(none, [started as never, ...rest], false);
    expect(texts(prepend(later, [...events.slice(8), queued], false))).toEqual(["said r3", "said r4"]);
  });

  it("settle what is on its way here: queued, begun or ended, it is shown once", () => {
    const sent = ["k1", "k2", "k3"].reduce((before, key) => say(before, { content: key, key }, 5), none);
    const [started] = answered("r2", "k2", "", "k2");
    const page = [...answered("r1", "k1", "done", "k1"), started as never, typed("run.queued", { run_id: "r4", text: "k3", key: null })];
    const states = ({ turns }: Conversation) => turns.map(({ id, status }) => [id, status]);
    const come = prepend(sent, page, true);
    expect(states(come)).toEqual([["k1", "completed"], ["k2", "running"], ["r4", "queued"], ["k3", "pending"]]);
    const queued = prepend(sent, [...page, typed("run.queued", { run_id: "r3", text: "k3", key: "k3" })], true);
    expect(states(queued).slice(2)).toEqual([["k3", "queued"], ["r4", "queued"]]);
    expect(states(receive(queued, answered("r3", "k3", "done", "k3"))).slice(2)).toEqual([["k3", "completed"], ["r4", "queued"]]);
  });

  it("are not told again by the socket", () => {
    const newest = prepend(none, events.slice(8), false);
    expect(texts(receive(newest, events))).toEqual(["said r3"]);
  });

  it("hold back a run whose beginning is not there", () => {
    const newest = prepend(none, events.slice(2, 4), false);
    expect(newest.turns).toEqual([]);
    expect(newest.held).toHaveLength(2);
  });
});

it("knows a text that is to be shown as it is, while it is written and when it is whole", () => {
  const begun = [event("r", 1, "run.started", { input: { text: "!ls" } }), typed("message.delta", { run_id: "r", message_id: "m", text: "# a", format: "plain" })];
  const written = receive(emptyConversation(), begun);
  expect(written.turns[0]?.parts[0]).toMatchObject({ text: "# a", isPlain: true });
  const whole = receive(emptyConversation(), [...begun.slice(0, 1), event("r", 2, "message.completed", { message_id: "m", text: "# a", format: "plain" })]);
  expect(whole.turns[0]?.parts[0]).toMatchObject({ isPlain: true });
  const usual = receive(emptyConversation(), [...begun.slice(0, 1), event("r", 2, "message.completed", { message_id: "m", text: "# a", format: "markdown" })]);
  expect(usual.turns[0]?.parts[0]).toMatchObject({ isPlain: false });
});
