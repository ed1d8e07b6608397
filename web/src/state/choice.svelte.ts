// Who is to answer, with what: kept for the next visit.
import type { Choices } from "../protocol/http";

/** What was chosen; empty is as the server sees fit. */
export interface Choice {
  agent: string;
  model: string;
  reasoning: string;
}

const KEPT = "parlor.choice";

/** What is chosen for the next message. */
export const choice: Choice = $state({ agent: "", model: "", reasoning: "", ...kept() });

/** What of the choice there is: an agent or a model may be gone since, and only agents with a model take one. */
export function offered({ agent, model, reasoning }: Choice, choices: Choices | null): Choice {
  if (!choices) return { agent, model, reasoning };
  const known = choices.agents.some(({ id }) => id === agent) ? agent : "";
  const kind = choices.agents.find(({ id }) => id === (known || choices.default_agent))?.kind ?? "";
  if (kind === "local" || kind === "script") return { agent: known, model: "", reasoning: "" };
  return {
    agent: known,
    model: choices.models.some(({ name }) => name === model) ? model : "",
    reasoning: choices.reasoning.includes(reasoning) ? reasoning : "",
  };
}

/** Keeps what is chosen. */
export function keepChoice(): void {
  localStorage.setItem(KEPT, JSON.stringify(choice));
}

function kept(): Partial<Choice> {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "{}") as Partial<Choice>;
  } catch {
    return {};
  }
}
