import { expect, it, vi } from "vitest";
import type { Choices } from "../protocol/http";

vi.stubGlobal("localStorage", { getItem: () => null, setItem: () => undefined });
const { offered } = await import("./choice.svelte");

const choices: Choices = {
  agents: [{ id: "main", name: "Main", kind: "model", model: "fast" }, { id: "local", name: "Local", kind: "local", model: null }],
  default_agent: "main",
  models: [{ name: "fast", provider: "openai", model: "fast-1" }],
  reasoning: ["low", "high"],
};

it("takes what there is", () => {
  expect(offered({ agent: "main", model: "fast", reasoning: "high" }, choices)).toEqual({ agent: "main", model: "fast", reasoning: "high" });
});

it("leaves out what is gone", () => {
  expect(offered({ agent: "old", model: "old", reasoning: "most" }, choices)).toEqual({ agent: "", model: "", reasoning: "" });
});

it("gives no model to an agent that has none", () => {
  expect(offered({ agent: "local", model: "fast", reasoning: "high" }, choices)).toEqual({ agent: "local", model: "", reasoning: "" });
});

it("believes what was chosen while nothing is known", () => {
  expect(offered({ agent: "old", model: "m", reasoning: "" }, null)).toEqual({ agent: "old", model: "m", reasoning: "" });
});
