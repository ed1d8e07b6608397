// The user's answers to the questions of a conversation: what the user writes, what is on its way, and what the server said to it.
import { lateAnswerText, outcomeOfRefusal } from "../model/texts";
import type { QuestionOutcome } from "../protocol/frames";
import { answerQuestion, type QuestionAnswer, RefusedError, UnauthorizedError } from "../protocol/http";
import { announce } from "./announce.svelte";

/** The longest message to the agent, in characters. The server's own limit is 4096 bytes. */
export const MAX_ANSWER_CHARS = 4096;

/** The answer to one question. Kept outside of the rows, because scrolling removes rows and adds them again. */
export class AnswerDraft {
  /** The message to the agent, which a refusal sends along. */
  message = $state("");
  isSending = $state(false);
  /** Why the answer did not count. */
  error = $state("");
}

/** Receives what the server says to an answer. */
export interface AnswerListener {
  /** The server has told how the question is settled. */
  onSettled(question: string, outcome: QuestionOutcome): void;
  /** The server requires a token. */
  onLocked(): void;
}

/** The answers of one conversation. They go over HTTP, so that a tab whose connection another tab has taken learns that it is too late. */
export class Answers {
  private readonly drafts = new Map<string, AnswerDraft>();

  constructor(
    private readonly session: string,
    private readonly listener: AnswerListener,
  ) {}

  /** The same object for each call with the same question. */
  draftOf(question: string): AnswerDraft {
    const draft = this.drafts.get(question) ?? new AnswerDraft();
    this.drafts.set(question, draft);
    return draft;
  }

  /** Sends an answer, unless one is on its way already. */
  async send(question: string, answer: QuestionAnswer["answer"]): Promise<void> {
    const draft = this.draftOf(question);
    if (draft.isSending) return;
    draft.isSending = true;
    draft.error = "";
    const message = answer === "deny" ? draft.message.trim() : "";
    try {
      await answerQuestion(this.session, question, { answer, ...(message && { message }) });
      this.listener.onSettled(question, answer);
    } catch (error) {
      this.onError(question, draft, error);
    }
    draft.isSending = false;
  }

  private onError(question: string, draft: AnswerDraft, error: unknown): void {
    if (error instanceof UnauthorizedError) return this.listener.onLocked();
    const isLate = error instanceof RefusedError && error.status === 409;
    const outcome = isLate ? outcomeOfRefusal(error.message) : null;
    draft.error = isLate ? lateAnswerText(outcome) : `Your answer was not taken. ${(error as Error).message}`;
    announce(draft.error);
    if (outcome) this.listener.onSettled(question, outcome);
  }
}
