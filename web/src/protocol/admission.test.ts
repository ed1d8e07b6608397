import { expect, it } from "vitest";
import { judge } from "./admission";

it.each([
  [401, "unauthorized", "locked"],
  [400, "Bad Request", "none"],
  [400, "session_id is longer than 256 bytes", "misnamed"],
  [403, "Forbidden", "barred"],
  [404, "404 page not found", "barred"],
  [429, "", "barred"],
  [503, "too many connections", "barred"],
  [503, "channel not running", "away"],
  [502, "<html>", "away"],
])("an answer of %i %s means %s", (status, words, kind) => {
  expect(judge(status, words).kind).toBe(kind);
});
