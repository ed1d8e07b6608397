import { expect, it } from "vitest";
import { event, typedFrame } from "../model/fixtures";
import { messageFrame, parseFrame, acknowledgedKey, stopFrame } from "./frames";

const file = { data: "AAAA", filename: "a.png", content_type: "image/png" };

it("encodes a text as message.send, and files as media.send with the text as caption of the first", () => {
  expect(JSON.parse(messageFrame({ content: "hi", key: "k", agent_id: "demo" }))).toEqual({ type: "message.send", payload: { content: "hi", key: "k", agent_id: "demo" } });
  expect(JSON.parse(messageFrame({ content: "look", key: "k", attachments: [file, file] }))).toEqual({
    type: "media.send",
    payload: { attachments: [{ ...file, caption: "look" }, file], key: "k" },
  });
  expect(JSON.parse(messageFrame({ content: " ", key: "k", attachments: [file] })).payload.attachments).toEqual([file]);
});

it("encodes run.stop with the run id", () => {
  expect(JSON.parse(stopFrame("r1"))).toEqual({ type: "run.stop", payload: { run_id: "r1" } });
});

it("parses events and typed frames, and returns null for anything else", () => {
  expect(parseFrame('{"type":"pong"}')).toEqual({ type: "pong", payload: {} });
  expect(parseFrame('{"event_type":"run.started","event_id":"e","run_id":"r"}')).toMatchObject({ data: {} });
  for (const text of ["", "null", "[]", '"x"', '{"event_type":"x"}', "{}"]) expect(parseFrame(text)).toBeNull();
});

it("finds the key of a message that was started, queued or refused, and of nothing else", () => {
  expect(acknowledgedKey(event("r", 1, "run.started", { input: { key: "k" } }))).toBe("k");
  expect(acknowledgedKey(typedFrame("run.queued", { run_id: "r", text: "x", key: "k" }))).toBe("k");
  expect(acknowledgedKey(typedFrame("error", { code: "x", key: "k" }))).toBe("k");
  expect(acknowledgedKey(typedFrame("run.queued", { run_id: "r", text: "x", key: null }))).toBe(null);
  expect(acknowledgedKey(event("r", 2, "run.completed"))).toBe(null);
});
