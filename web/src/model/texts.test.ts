import { expect, it } from "vitest";
import { deletionError, failureText, lastEventText, tourText } from "./texts";
import { emptyTurn } from "./turn";

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
