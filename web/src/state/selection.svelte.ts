// The agent, the model and the reasoning level that the user selected; stored for the next visit.
import type { Choices } from "../protocol/http";

/** An empty string leaves the choice to the server. */
export interface Selection {
  agent: string;
  model: string;
  reasoning: string;
}

const STORAGE_KEY = "parlor.choice";

/** The selection for the next message. It may name agents or models that are gone: use `validSelection`. */
export const selection: Selection = $state({ agent: "", model: "", reasoning: "", ...loadSelection() });

/** Clears whatever the server does not offer any more, and the model of an agent that uses none. */
export function validSelection({ agent, model, reasoning }: Selection, choices: Choices | null): Selection {
  if (!choices) return { agent, model, reasoning };
  const validAgent = choices.agents.some(({ id }) => id === agent) ? agent : "";
  const kind = choices.agents.find(({ id }) => id === (validAgent || choices.default_agent))?.kind ?? "";
  if (kind === "local" || kind === "script") return { agent: validAgent, model: "", reasoning: "" };
  return {
    agent: validAgent,
    model: choices.models.some(({ name }) => name === model) ? model : "",
    reasoning: choices.reasoning.includes(reasoning) ? reasoning : "",
  };
}

export function saveSelection(): void {
  localStorage.setItem(STORAGE_KEY, JSON.stringify(selection));
}

function loadSelection(): Partial<Selection> {
  try {
    return JSON.parse(localStorage.getItem(STORAGE_KEY) ?? "{}") as Partial<Selection>;
  } catch {
    return {};
  }
}
