import { expect, it, vi } from "vitest";
import type { Choices } from "../protocol/http";

vi.stubGlobal("localStorage", { getItem: () => null, setItem: () => undefined });
const { validSelection } = await import("./selection.svelte");

const choices: Choices = {
  agents: [{ id: "main", name: "Main", kind: "model", model: "fast" }, { id: "local", name: "Local", kind: "local", model: null }],
  default_agent: "main",
  models: [{ name: "fast", provider: "openai", model: "fast-1" }],
  reasoning: ["low", "high"],
};

it("keeps what the server offers", () => {
  expect(validSelection({ agent: "main", model: "fast", reasoning: "high" }, choices)).toEqual({ agent: "main", model: "fast", reasoning: "high" });
});

it("clears what is gone", () => {
  expect(validSelection({ agent: "old", model: "old", reasoning: "most" }, choices)).toEqual({ agent: "", model: "", reasoning: "" });
});

it("clears the model of an agent that uses none", () => {
  expect(validSelection({ agent: "local", model: "fast", reasoning: "high" }, choices)).toEqual({ agent: "local", model: "", reasoning: "" });
});

it("keeps the selection while the choices are unknown", () => {
  expect(validSelection({ agent: "old", model: "m", reasoning: "" }, null)).toEqual({ agent: "old", model: "m", reasoning: "" });
});
