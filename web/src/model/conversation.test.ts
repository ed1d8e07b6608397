import { describe, expect, it } from "vitest";
import { MAX_OUTPUT_CHARS } from "./apply-event";
import { activeTurn, addPending, applyFrames, type Conversation, emptyConversation, markStale, prependPage, removeTurn } from "./conversation";
import { answeredRun, event, typedFrame } from "./fixtures";
import type { TextPart, Turn } from "./turn";

const empty = emptyConversation();
const texts = ({ turns }: Conversation): string[] => turns.map(answer);
const answer = ({ parts }: Turn): string => parts.map((part) => (part as TextPart).text).join("|");

describe("a run", () => {
  it("becomes a turn with its answer", () => {
    const { turns, lastEventId } = applyFrames(empty, answeredRun("r1", "hello", "hi"));
    expect(turns).toHaveLength(1);
    expect(turns[0]).toMatchObject({ text: "hello", status: "completed", durationMs: 30 });
    expect(texts({ ...empty, turns })).toEqual(["hi"]);
    expect(lastEventId).not.toBe("");
  });

  it("is shown once, even if its events arrive twice", () => {
    const events = answeredRun("r1", "hello", "hi");
    const once = applyFrames(empty, events);
    expect(texts(applyFrames(once, events))).toEqual(["hi"]);
    expect(applyFrames(once, events).turns[0]).toBe(once.turns[0]);
  });

  it("leaves other turns the same objects", () => {
    const first = applyFrames(empty, answeredRun("r1", "a", "b"));
    const second = applyFrames(first, answeredRun("r2", "c", "d"));
    expect(second.turns[0]).toBe(first.turns[0]);
    expect(first.turns).toHaveLength(1);
  });

  it("replaces the pending message, under the same id", () => {
    const sent = addPending(empty, { content: "hello", key: "k1" }, 5);
    expect(sent.turns[0]).toMatchObject({ id: "k1", status: "pending" });
    const { turns } = applyFrames(sent, answeredRun("r1", "hello", "hi", "k1"));
    expect(turns).toHaveLength(1);
    expect(turns[0]).toMatchObject({ id: "k1", runId: "r1", status: "completed" });
  });

  it("comes before messages that still wait", () => {
    const sent = addPending(empty, { content: "mine", key: "k1" }, 5);
    const { turns } = applyFrames(sent, answeredRun("r1", "theirs", "hi"));
    expect(turns.map(({ text }) => text)).toEqual(["theirs", "mine"]);
  });
});

describe("the queue", () => {
  it("matches a message of this page by its key, not by its text", () => {
    const sent = addPending(applyFrames(empty, [event("r1", 1, "run.started", { input: { text: "long" } })]), { content: "next", key: "k2" }, 5);
    const foreign = applyFrames(sent, [typedFrame("run.queued", { run_id: "r3", text: "next", key: null })]);
    expect(foreign.turns.map(({ id, status }) => [id, status])).toEqual([["r1", "running"], ["k2", "pending"], ["r3", "queued"]]);
    const queued = applyFrames(sent, [typedFrame("run.queued", { run_id: "r2", text: "next\n[file: a]", key: "k2" })]);
    expect(queued.turns.map(({ status }) => status)).toEqual(["running", "queued"]);
    const begun = applyFrames(queued, answeredRun("r2", "next", "done", "k2"));
    expect(begun.turns.map(({ id, status }) => [id, status])).toEqual([["r1", "running"], ["k2", "completed"]]);
  });

  it("shows messages of other clients, and removes them again", () => {
    const queued = applyFrames(empty, [typedFrame("run.queued", { run_id: "r2", text: "next" }), typedFrame("run.queued", { run_id: "r2", text: "next" })]);
    expect(queued.turns).toHaveLength(1);
    expect(applyFrames(queued, [typedFrame("run.unqueued", { run_ids: ["r2"] })]).turns).toHaveLength(0);
  });
});

describe("a refusal", () => {
  const sent = addPending(empty, { content: "x", key: "k1" }, 5);

  it("fails the message, and does not count as an event of the log", () => {
    const refused = applyFrames(sent, [
      event("r9", 1, "error.raised", { scope: "run", code: "AGENT_NOT_FOUND", input: { key: "k1" } }),
      event("r9", 2, "run.failed", { error_code: "AGENT_NOT_FOUND", message: "no agent", input: { key: "k1" } }),
    ]);
    expect(refused.turns[0]).toMatchObject({ status: "failed", failure: { code: "AGENT_NOT_FOUND", message: "no agent" } });
    expect(refused.lastEventId).toBe("");
    expect(removeTurn(refused, "k1").turns).toHaveLength(0);
  });

  it("by a typed error fails only the message with that key", () => {
    const other = addPending(sent, { content: "y", key: "k2" }, 6);
    const { turns } = applyFrames(other, [typedFrame("error", { code: "media_write_failed", message: "too large", key: "k2" })]);
    expect(turns.map(({ status }) => status)).toEqual(["pending", "failed"]);
  });
});

describe("a stop", () => {
  it("ends the turn, and its message becomes the failure instead of the answer", () => {
    const { turns } = applyFrames(empty, [
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

describe("a growing text", () => {
  const begun = applyFrames(empty, [
    event("r1", 1, "run.started", { input: { text: "x" } }),
    event("r1", 2, "message.started", { message_id: "m1" }),
  ]);
  const piece = (text: string) => typedFrame("message.delta", { run_id: "r1", message_id: "m1", text });

  it("appends each piece", () => {
    expect(texts(applyFrames(begun, [piece("a"), piece("b")]))).toEqual(["ab"]);
    expect(activeTurn(begun)?.runId).toBe("r1");
  });

  it("starts again from its beginning after a reconnect", () => {
    const broken = markStale(applyFrames(begun, [piece("one two")]));
    expect(texts(broken)).toEqual(["one two"]);
    expect(texts(applyFrames(broken, [piece("one two three"), piece(" four")]))).toEqual(["one two three four"]);
  });

  it("ignores pieces once it is complete", () => {
    const done = applyFrames(begun, [event("r1", 3, "message.completed", { message_id: "m1", text: "whole" }), piece("late")]);
    expect(texts(done)).toEqual(["whole"]);
  });
});

describe("the work of a run", () => {
  const work = applyFrames(empty, [
    event("r1", 1, "run.started", { input: { text: "x" } }),
    event("r1", 2, "step.started", { step_id: "step_001", kind: "tool", title: "Using shell" }),
    event("r1", 3, "tool.called", { step_id: "step_001", tool_call_id: "c1", tool_name: "shell", arg_preview: "{}" }),
    typedFrame("tool.output", { run_id: "r1", tool_call_id: "c1", text: "out" }),
    event("r1", 4, "tool.completed", { step_id: "step_001", tool_call_id: "c1", result_preview: "out", details: { structured_content: { a: 1 } }, duration_ms: 7 }),
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
    expect(shell?.tools[0]).toMatchObject({ name: "shell", output: "out", details: { structured_content: { a: 1 } }, status: "completed", durationMs: 7 });
    expect(scout?.work).toMatchObject({ answer: "fine", durationMs: 5 });
    expect(scout?.work?.steps[0]?.title).toBe("Answering");
    expect(work.turns.map(answer)).toEqual([""]);
  });

  it("adds up the usage", () => {
    expect(work.turns[0]?.usage).toEqual({ inputTokens: 10, outputTokens: 6, costMicros: 18 });
  });

  it("keeps only the end of a long output", () => {
    const loud = applyFrames(work, [typedFrame("tool.output", { run_id: "r1", tool_call_id: "c1", text: "x".repeat(MAX_OUTPUT_CHARS) + "end" })]);
    const output = loud.turns[0]?.work.steps[0]?.tools[0]?.output ?? "";
    expect(output).toHaveLength(MAX_OUTPUT_CHARS);
    expect(output.endsWith("end")).toBe(true);
  });
});

describe("older pages", () => {
  const events = ["r1", "r2", "r3"].flatMap((run) => answeredRun(run, run, `said ${run}`));

  it("come before the loaded turns, even if the cut is inside a run", () => {
    for (let at = 1; at < events.length; at++) {
      const newest = prependPage(empty, events.slice(at), false);
      const whole = prependPage(newest, events.slice(0, at), true);
      expect(texts(whole)).toEqual(["said r1", "said r2", "said r3"]);
      expect(whole.heldFrames).toEqual([]);
      expect(whole.lastEventId).toBe(events.at(-1)?.event_id);
    }
  });

  it("add queued runs, but not those that started later", () => {
    const [started, ...rest] = answeredRun("r4", "next", "said r4");
    const queued = typedFrame("run.queued", { run_id: "r4", text: "next" });
    const newest = prependPage(empty, [...events.slice(8), queued], false);
    expect(newest.turns.map(({ status }) => status)).toEqual(["completed", "queued"]);
    const later = prependPage(empty, [started as never, ...rest], false);
    expect(texts(prependPage(later, [...events.slice(8), queued], false))).toEqual(["said r3", "said r4"]);
  });

  it("show a pending message once, whether its run is queued, started or ended", () => {
    const sent = ["k1", "k2", "k3"].reduce((before, key) => addPending(before, { content: key, key }, 5), empty);
    const [started] = answeredRun("r2", "k2", "", "k2");
    const page = [...answeredRun("r1", "k1", "done", "k1"), started as never, typedFrame("run.queued", { run_id: "r4", text: "k3", key: null })];
    const states = ({ turns }: Conversation) => turns.map(({ id, status }) => [id, status]);
    const come = prependPage(sent, page, true);
    expect(states(come)).toEqual([["k1", "completed"], ["k2", "running"], ["r4", "queued"], ["k3", "pending"]]);
    const queued = prependPage(sent, [...page, typedFrame("run.queued", { run_id: "r3", text: "k3", key: "k3" })], true);
    expect(states(queued).slice(2)).toEqual([["k3", "queued"], ["r4", "queued"]]);
    expect(states(applyFrames(queued, answeredRun("r3", "k3", "done", "k3"))).slice(2)).toEqual([["k3", "completed"], ["r4", "queued"]]);
  });

  it("are not repeated by the socket", () => {
    const newest = prependPage(empty, events.slice(8), false);
    expect(texts(applyFrames(newest, events))).toEqual(["said r3"]);
  });

  it("hold the frames of a run whose beginning is missing", () => {
    const newest = prependPage(empty, events.slice(2, 4), false);
    expect(newest.turns).toEqual([]);
    expect(newest.heldFrames).toHaveLength(2);
  });
});

it("recognises plain text, while it grows and when it is complete", () => {
  const begun = [event("r", 1, "run.started", { input: { text: "!ls" } }), typedFrame("message.delta", { run_id: "r", message_id: "m", text: "# a", format: "plain" })];
  const written = applyFrames(emptyConversation(), begun);
  expect(written.turns[0]?.parts[0]).toMatchObject({ text: "# a", isPlain: true });
  const whole = applyFrames(emptyConversation(), [...begun.slice(0, 1), event("r", 2, "message.completed", { message_id: "m", text: "# a", format: "plain" })]);
  expect(whole.turns[0]?.parts[0]).toMatchObject({ isPlain: true });
  const usual = applyFrames(emptyConversation(), [...begun.slice(0, 1), event("r", 2, "message.completed", { message_id: "m", text: "# a", format: "markdown" })]);
  expect(usual.turns[0]?.parts[0]).toMatchObject({ isPlain: false });
});
