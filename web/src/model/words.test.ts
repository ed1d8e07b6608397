import { describe, expect, it } from "vitest";
import { emptyTurn } from "./turn";
import { ago, askedText, bytes, count, deletionFlaw, duration, failureWords, fileFlaw, lastEventWords, MAX_FILE_BYTES, MAX_FILES, MAX_NAMED, money, someNames, tourWords } from "./words";

it("says durations, sizes, numbers and money as people do", () => {
  expect([8, 1234, 34_000, 200_000, 7_300_000].map(duration)).toEqual(["8 ms", "1.2 s", "34 s", "3 min 20 s", "2 h 1 min"]);
  expect([512, 12_345, 26_214_400].map(bytes)).toEqual(["512 B", "12 KB", "25.0 MB"]);
  expect([999, 12_345, 123_456, 1_234_567].map(count)).toEqual(["999", "12,345", "123 k", "1.2 M"]);
  expect([0, 12_345, 2_500_000].map(money)).toEqual(["$0.00", "$0.012", "$2.50"]);
});

it("says how long ago something was", () => {
  const now = Date.parse("2026-03-30T12:00:00Z");
  expect([1, 300, 7_200, 172_800].map((seconds) => ago(now - seconds * 1000, now))).toEqual(["just now", "5 min ago", "2 h ago", "2 d ago"]);
});

it("says of a run that somebody stopped that it was stopped, and not that it failed", () => {
  const event = { event_type: "run.failed", timestamp: "" };
  expect(lastEventWords({ last_event: { ...event, error_code: "RUN_CANCELLED" } })).toBe("run stopped");
  expect(lastEventWords({ last_event: { ...event, error_code: "NOT_FOUND" } })).toBe("run failed");
  expect([lastEventWords({ last_event: event }), lastEventWords({ last_event: null }), lastEventWords({})]).toEqual(["run failed", "", ""]);
});

it("names some, and counts the others", () => {
  const names = Array.from({ length: MAX_NAMED + 3 }, (_, index) => `${index}.txt`);
  expect(someNames(names.slice(0, 2))).toBe("“0.txt”, “1.txt”");
  expect(someNames(names.slice(0, MAX_NAMED))).not.toContain("more");
  expect(someNames(names)).toMatch(/“7\.txt” and 3 more$/);
});

describe("a file", () => {
  const file = (size: number) => ({ name: "a.png", size });

  it("may have 25 MiB and not a byte more", () => {
    expect(fileFlaw(file(MAX_FILE_BYTES), [])).toBe("");
    expect(fileFlaw(file(MAX_FILE_BYTES + 1), [])).toContain("26,214,401 bytes");
  });

  it("must fit beside the others, and have something in it", () => {
    expect(fileFlaw(file(MAX_FILE_BYTES), [file(MAX_FILE_BYTES)])).toContain("all files together");
    expect(fileFlaw(file(1), Array.from({ length: MAX_FILES }, () => file(1)))).toContain("64 files");
    expect(fileFlaw(file(0), [])).toContain("is empty");
  });

  it("is not also shown as the line that stands for it", () => {
    const turn = { ...emptyTurn("r", "r", 0), text: "look\n[image: a.png]\n[file: b.txt]", media: [{ id: "1", filename: "a.png", content_type: "image/png", size: 1 }] };
    expect(askedText(turn)).toBe("look\n[file: b.txt]");
  });

  it("is known by its line also if the server has tidied its name", () => {
    const media = ["passwd.png", "a.png", "here.png"].map((filename) => ({ id: filename, filename, content_type: "image/png", size: 1 }));
    const text = "[file: mine]\nlook\n[image: ../../etc/passwd.png]\n[image: a.png]\n[image: \there.png]";
    expect(askedText({ ...emptyTurn("r", "r", 0), text, media })).toBe("[file: mine]\nlook");
  });
});

it("explains failures, and repeats those that it does not know", () => {
  expect(failureWords({ code: "RUN_INTERRUPTED", message: "", retryable: true })).toContain("interrupted");
  expect(failureWords({ code: "NOT_FOUND", message: "no such host", retryable: false })).toBe("no such host");
  expect(failureWords({ code: "FAILED", message: "", retryable: false })).toContain("did not say why");
});

it("says what to do with a session that cannot be deleted", () => {
  expect(deletionFlaw({ running: true, here: true })).toContain("stop it");
  expect(deletionFlaw({ running: true, here: false })).toContain("Another program");
  expect(deletionFlaw({ running: false, here: true })).toContain("in a moment");
});

it("has words of the tour for every end of a run", () => {
  const run = emptyTurn("r", "r", 0);
  expect(tourWords(undefined)).toContain("on its way");
  expect(tourWords({ ...run, status: "queued" })).toContain("Another run is before it");
  expect(tourWords(run)).toContain("at work");
  expect(tourWords({ ...run, status: "completed" })).toContain("There is the answer");
  expect(tourWords({ ...run, status: "stopped" })).toContain("was stopped");
  expect(tourWords({ ...run, status: "failed" })).toContain("It failed");
  expect(tourWords({ ...run, status: "failed", runId: "" })).toContain("was not taken");
});
