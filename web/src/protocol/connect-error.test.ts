import { expect, it } from "vitest";
import { connectErrorFor } from "./connect-error";

it.each([
  [401, "unauthorized", "unauthorized"],
  [400, "Bad Request", "none"],
  [400, "session_id is longer than 256 bytes", "invalid-session"],
  [403, "Forbidden", "refused"],
  [404, "404 page not found", "refused"],
  [429, "", "refused"],
  [503, "too many connections", "refused"],
  [503, "channel not running", "unreachable"],
  [502, "<html>", "unreachable"],
])("translates %i %s to %s", (status, body, kind) => {
  expect(connectErrorFor(status, body).kind).toBe(kind);
});
