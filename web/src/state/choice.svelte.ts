// Who is to answer, with what: kept for the next visit.

/** What was chosen; empty is as the server sees fit. */
export interface Choice {
  agent: string;
  model: string;
  reasoning: string;
}

const KEPT = "parlor.choice";

/** What is chosen for the next message. */
export const choice: Choice = $state({ agent: "", model: "", reasoning: "", ...kept() });

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
