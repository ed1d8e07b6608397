import { expect, it } from "vitest";
import { applyFrames, type Conversation, emptyConversation, prependPage, recordOutcome } from "./conversation";
import { event } from "./fixtures";
import { visibleText } from "./format";
import { activityText, lateAnswerText, outcomeOfRefusal, outcomeText, questionAnnouncement, sessionStateText } from "./texts";
import { pendingQuestion, type Turn } from "./turn";

const started = event("r", 1, "run.started", { input: { text: "!true" } });
const asked = event("r", 2, "question.asked", { question_id: "q", title: "Run `true`", reason: "a rule says ask", detail: "true", options: ["once", "always", "deny"] });
const answered = event("r", 3, "question.answered", { question_id: "q", answer: "deny", message: "use make", by: { door: "chat" } });
const waiting = applyFrames(emptyConversation(), [started, asked]);
const turn = ({ turns }: Conversation): Turn => turns[0] as Turn;

it("shows a question until it is answered, at its place in the answer", () => {
  expect(turn(waiting).parts).toEqual([
    { kind: "question", id: "q", title: "Run `true`", reason: "a rule says ask", detail: "true", canRemember: true, outcome: null, message: "", door: "" },
  ]);
  expect(pendingQuestion(turn(waiting))?.id).toBe("q");
  expect(activityText(turn(waiting))).toBe("Waiting for your answer");
  const settled = applyFrames(waiting, [answered, event("r", 4, "message.completed", { message_id: "m", text: "So be it." })]);
  expect(turn(settled).parts.map(({ id }) => id)).toEqual(["q", "m"]);
  expect(turn(settled).parts[0]).toMatchObject({ outcome: "deny", message: "use make", door: "chat" });
  expect(pendingQuestion(turn(settled))).toBeUndefined();
  expect(activityText(turn(settled))).toBe("Working");
  // The state before is a value of its own.
  expect(pendingQuestion(turn(waiting))?.id).toBe("q");
});

it("finds the pending question again after a reload, and asks once if the socket repeats it", () => {
  const reloaded = prependPage(emptyConversation(), [started, asked], true);
  expect(pendingQuestion(turn(reloaded))?.id).toBe("q");
  expect(turn(applyFrames(reloaded, [{ ...asked, replay: true }])).parts).toHaveLength(1);
});

it("offers to remember the answer only if the server does", () => {
  const options = (data: object) => pendingQuestion(turn(applyFrames(emptyConversation(), [started, event("r", 2, "question.asked", { question_id: "q", ...data })])))?.canRemember;
  expect([options({ options: ["once", "deny"] }), options({})]).toEqual([false, false]);
});

it("withdraws the question of a run that ended", () => {
  const ended = applyFrames(waiting, [event("r", 3, "run.failed", { error_code: "RUN_INTERRUPTED" })]);
  expect(turn(ended).parts[0]).toMatchObject({ outcome: "withdrawn" });
});

it("shows a subagent's question in the turn of its parent", () => {
  const subagent = [
    event("r", 2, "step.started", { step_id: "sub" }),
    event("sub", 1, "run.started", {}, "r"),
    event("sub", 2, "question.asked", { question_id: "q2", title: "Read" }, "r"),
  ];
  const nested = applyFrames(emptyConversation(), [started, ...subagent]);
  expect(pendingQuestion(turn(nested))?.title).toBe("Read");
  expect(pendingQuestion(turn(applyFrames(nested, [event("sub", 3, "question.answered", { question_id: "q2", answer: "once" }, "r")])))).toBeUndefined();
});

it("records the outcome that an HTTP response told, and what the event adds later", () => {
  const known = recordOutcome(waiting, "q", "once");
  expect(turn(known).parts[0]).toMatchObject({ outcome: "once", door: "" });
  const complete = { ...answered, data: { question_id: "q", answer: "once", by: { door: "http" } } } as typeof answered;
  expect(turn(applyFrames(known, [complete])).parts[0]).toMatchObject({ outcome: "once", door: "http" });
  // The event came first: the answer that counts stays.
  expect(turn(recordOutcome(applyFrames(waiting, [answered]), "q", "once")).parts[0]).toMatchObject({ outcome: "deny" });
  expect(recordOutcome(waiting, "other", "once").turns[0]).toBe(waiting.turns[0]);
});

it("says how a question was settled", () => {
  expect(outcomeText({ outcome: "once", door: "chat", message: "" })).toBe("Allowed once, through chat.");
  expect(outcomeText({ outcome: "always", door: "http", message: "" })).toBe("Allowed, and always in this project, through the page or the HTTP API.");
  expect(outcomeText({ outcome: "deny", door: "", message: "" })).toBe("Denied.");
  expect(outcomeText({ outcome: "deny", door: "supr", message: "use make" })).toBe("Denied, through supr: use make");
  expect(outcomeText({ outcome: "expired", door: "", message: "" })).toContain("Expired");
  expect(outcomeText({ outcome: "withdrawn", door: "", message: "" })).toContain("Withdrawn");
});

it("tells a late answer what the first one was", () => {
  expect(outcomeOfRefusal("question qst_1 was settled before: expired")).toBe("expired");
  expect(outcomeOfRefusal("the session is in use")).toBeNull();
  expect(lateAnswerText("deny")).toBe("Your answer came too late and changed nothing: it was denied.");
  expect(lateAnswerText(null)).toBe("Your answer came too late and changed nothing.");
});

it("marks sessions that ask", () => {
  const question = { question_id: "q", title: "Run" };
  expect(sessionStateText({ running: true, queued: 2, question })).toBe("Asks a question, 2 queued");
  expect(sessionStateText({ running: true, queued: 2 })).toBe("Running, 2 queued");
  expect([sessionStateText({ running: true }), sessionStateText({ running: false })]).toEqual(["Running", "Idle"]);
});

it("shows hidden characters of a command", () => {
  expect(visibleText("rm \u202etxt.exe\u200b\u0007\u3164 # é 漢\n\tnext")).toBe("rm \\u{202e}txt.exe\\u{200b}\\u{7}\\u{3164} # é 漢\n\tnext");
  expect(questionAnnouncement("Run \u2066x")).toBe("The agent asks before it goes on: Run \\u{2066}x");
});
