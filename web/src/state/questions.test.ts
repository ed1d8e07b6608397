import { beforeEach, expect, it, vi } from "vitest";
import { Answers } from "./questions.svelte";

vi.stubGlobal("localStorage", { getItem: () => null });
const listener = { onSettled: vi.fn(), onLocked: vi.fn() };
let answers: Answers;

/** Makes every request return this response, and records the requests. */
function respond(status: number, body: string) {
  const fetch = vi.fn((_path: string, _init: RequestInit) => Promise.resolve(new Response(body, { status })));
  vi.stubGlobal("fetch", fetch);
  return fetch;
}

beforeEach(() => {
  vi.clearAllMocks();
  answers = new Answers("a session", listener);
});

it("sends a refusal with the message, and an approval without it", async () => {
  const fetch = respond(200, "{}");
  answers.draftOf("q/1").message = " use make ";
  await answers.send("q/1", "deny");
  await answers.send("q/1", "once");
  expect(fetch.mock.calls.map(([path, { method, body }]) => [method, path, body])).toEqual([
    ["POST", "/api/sessions/a%20session/questions/q%2F1/answer", '{"answer":"deny","message":"use make"}'],
    ["POST", "/api/sessions/a%20session/questions/q%2F1/answer", '{"answer":"once"}'],
  ]);
  expect(listener.onSettled.mock.calls).toEqual([["q/1", "deny"], ["q/1", "once"]]);
});

it("sends one answer at a time", async () => {
  const fetch = respond(200, "{}");
  const first = answers.send("q", "once");
  expect(answers.draftOf("q").isSending).toBe(true);
  await answers.send("q", "deny");
  await first;
  expect(fetch).toHaveBeenCalledTimes(1);
  expect(answers.draftOf("q").isSending).toBe(false);
});

it("says so when somebody else answered first, and how", async () => {
  respond(409, "question q was settled before: deny");
  await answers.send("q", "once");
  expect(answers.draftOf("q").error).toBe("Your answer came too late and changed nothing: it was denied.");
  expect(listener.onSettled).toHaveBeenCalledWith("q", "deny");
});

it("keeps the question and the message when the server does not take the answer", async () => {
  for (const [status, body] of [[404, "the session has no question q"], [400, "the answer cannot be taken: the message is too long"], [503, ""]] as const) {
    respond(status, body);
    answers.draftOf("q").message = "kept";
    await answers.send("q", "deny");
    expect(answers.draftOf("q")).toMatchObject({ message: "kept", isSending: false });
    expect(answers.draftOf("q").error).toContain(body || "503");
  }
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("no network")));
  await answers.send("q", "deny");
  expect(answers.draftOf("q").error).toBe("Your answer was not taken. The server does not answer.");
  expect(listener.onSettled).not.toHaveBeenCalled();
});

it("asks for the token when the server requires one", async () => {
  respond(401, "");
  await answers.send("q", "once");
  expect(listener.onLocked).toHaveBeenCalledOnce();
  expect(answers.draftOf("q").error).toBe("");
});
