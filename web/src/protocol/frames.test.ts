import { expect, it } from "vitest";
import { event, typed } from "../model/fixtures";
import { messageFrame, parseFrame, settledKey, stopFrame } from "./frames";

const file = { data: "AAAA", filename: "a.png", content_type: "image/png" };

it("says words, and files with words on the first of them", () => {
  expect(JSON.parse(messageFrame({ content: "hi", key: "k", agent_id: "demo" }))).toEqual({ type: "message.send", payload: { content: "hi", key: "k", agent_id: "demo" } });
  expect(JSON.parse(messageFrame({ content: "look", key: "k", attachments: [file, file] }))).toEqual({
    type: "media.send",
    payload: { attachments: [{ ...file, caption: "look" }, file], key: "k" },
  });
  expect(JSON.parse(messageFrame({ content: " ", key: "k", attachments: [file] })).payload.attachments).toEqual([file]);
});

it("stops a run by its name", () => {
  expect(JSON.parse(stopFrame("r1"))).toEqual({ type: "run.stop", payload: { run_id: "r1" } });
});

it("knows frames, and takes nothing else for one", () => {
  expect(parseFrame('{"type":"pong"}')).toEqual({ type: "pong", payload: {} });
  expect(parseFrame('{"event_type":"run.started","event_id":"e","run_id":"r"}')).toMatchObject({ data: {} });
  for (const text of ["", "null", "[]", '"x"', '{"event_type":"x"}', "{}"]) expect(parseFrame(text)).toBeNull();
});

it("settles a message that was taken, queued or refused, and nothing else", () => {
  expect(settledKey(event("r", 1, "run.started", { input: { key: "k" } }))).toBe("k");
  expect(settledKey(typed("run.queued", { run_id: "r", text: "x", key: "k" }))).toBe("k");
  expect(settledKey(typed("error", { code: "x", key: "k" }))).toBe("k");
  expect(settledKey(typed("run.queued", { run_id: "r", text: "x", key: null }))).toBe(null);
  expect(settledKey(event("r", 2, "run.completed"))).toBe(null);
});
