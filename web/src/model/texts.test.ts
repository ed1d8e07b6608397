import { expect, it } from "vitest";
import { changeText, deletionError, failureText, lastEventText, tourText, undoText } from "./texts";
import { emptyTurn, mayChangeFiles } from "./turn";

it("calls a cancelled run stopped, not failed", () => {
  const event = { event_type: "run.failed", timestamp: "" };
  expect(lastEventText({ last_event: { ...event, error_code: "RUN_CANCELLED" } })).toBe("run stopped");
  expect(lastEventText({ last_event: { ...event, error_code: "NOT_FOUND" } })).toBe("run failed");
  expect([lastEventText({ last_event: event }), lastEventText({ last_event: null }), lastEventText({})]).toEqual(["run failed", "", ""]);
});

it("explains known failure codes, and repeats the message of others", () => {
  expect(failureText({ code: "RUN_INTERRUPTED", message: "", retryable: true })).toContain("stopped in the middle");
  expect(failureText({ code: "NOT_FOUND", message: "no such host", retryable: false })).toBe("no such host");
  expect(failureText({ code: "FAILED", message: "", retryable: false })).toContain("without a reason");
});

it("says what to do with a session that cannot be deleted", () => {
  expect(deletionError({ running: true, here: true })).toContain("stop the run");
  expect(deletionError({ running: true, here: false })).toContain("Another program");
  expect(deletionError({ running: false, here: true })).toContain("in a moment");
});

it("has a tour text for every status of the run", () => {
  const run = emptyTurn("r", "r", 0);
  expect(tourText(undefined)).toContain("sending the message");
  expect(tourText({ ...run, status: "queued" })).toContain("Another run is active");
  expect(tourText(run)).toContain("is working");
  expect(tourText({ ...run, status: "completed" })).toContain("The answer is here");
  expect(tourText({ ...run, status: "stopped" })).toContain("was stopped");
  expect(tourText({ ...run, status: "failed" })).toContain("The run failed");
  expect(tourText({ ...run, status: "failed", runId: "" })).toContain("did not accept the message");
});

it("says what an undo did", () => {
  const files: never[] = [];
  expect(undoText({ restored: 0, kept: 0, files })).toBe("Nothing to do: every file is as before the run.");
  expect(undoText({ restored: 1, kept: 0, files })).toBe("Put back 1 file.");
  expect(undoText({ restored: 2, kept: 1, files })).toBe("Put back 2 files, and kept 1 file:");
});

it("says what a run did to a file", () => {
  const file = { path: "a", change: "changed", before: { kind: "file", mode: "644" }, after: { kind: "file", mode: "755" }, shown: "text" } as const;
  expect(changeText(file)).toBe("changed, 644 → 755");
  expect(changeText({ ...file, change: "created", before: { kind: "missing" }, shown: "binary" })).toBe("created, not a text");
  expect(changeText({ ...file, after: { kind: "link", target: "/etc" }, shown: "not_shown" })).toBe("changed, 644 → link to /etc, not shown");
});

it("offers the changes of runs that called a tool which can change files", () => {
  const turn = emptyTurn("t", "r", 0);
  const step = (name: string) => ({ tools: [{ name }], work: null }) as unknown as (typeof turn.work.steps)[number];
  expect(mayChangeFiles(turn)).toBe(false);
  expect(mayChangeFiles({ work: { ...turn.work, steps: [step("read_file")] } })).toBe(false);
  expect(mayChangeFiles({ work: { ...turn.work, steps: [step("read_file"), step("shell")] } })).toBe(true);
});
