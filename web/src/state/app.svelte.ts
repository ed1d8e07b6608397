// What the whole page shares: whether it is let in, what can be chosen, and how it looks.
import { claim, type Choices, choices, Locked, Missing, token } from "../protocol/http";
import { holdToken, takeCode, takeOldToken } from "../protocol/token";

/** How the page looks: as the system does, or as a person chose. */
export type Theme = "auto" | "light" | "dark";

const THEME = "parlor.theme";
const TOURED = "parlor.toured";

/** The state of the page. */
class App {
  /** `asking` until it is known whether a token is needed. */
  entry: "asking" | "locked" | "in" = $state("asking");
  /** Why the last token or link did not do. */
  entryFlaw = $state("");
  choices: Choices | null = $state.raw(null);
  theme: Theme = $state((localStorage.getItem(THEME) as Theme | null) ?? "auto");
  isToured = $state(localStorage.getItem(TOURED) !== null);

  /** Finds out whether this browser is let in; a one-time link lets it in. */
  async enter(): Promise<void> {
    const code = takeCode();
    const old = takeOldToken();
    if (code) {
      try {
        holdToken((await claim({ code })).token);
      } catch (error) {
        this.entryFlaw = error instanceof Missing ? "This server has no one-time links." : "This link was used already, or it is too old. Start parlor again for another, or enter the token.";
      }
    } else if (old) {
      // If it holds no longer, that is found out below.
      await claim({ token: old }).then(({ token }) => holdToken(token), () => undefined);
    }
    await this.tryToken();
  }

  /** Tries a token that was entered. */
  async unlock(text: string): Promise<void> {
    this.entryFlaw = "";
    try {
      holdToken((await claim({ token: text.trim() })).token);
    } catch (error) {
      this.entryFlaw = error instanceof Locked ? "The server does not take this token." : (error as Error).message;
      return;
    }
    await this.tryToken();
  }

  /** The server does not take the token any more. */
  lock(): void {
    if (this.entry === "in") this.entryFlaw = "The token that let this browser in holds no longer.";
    holdToken("");
    this.entry = "locked";
  }

  /** Looks again at what can be chosen: a key or a model may have been added. What cannot be had stays as it was. */
  async lookAtChoices(): Promise<void> {
    try {
      this.choices = await choices();
    } catch {
      // An older server has none; one that is away is asked again.
    }
  }

  /** Changes how the page looks. */
  setTheme(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem(THEME, theme);
  }

  /** The tour was seen, or is wanted again. */
  setToured(isToured: boolean): void {
    this.isToured = isToured;
    if (isToured) localStorage.setItem(TOURED, "1");
    else localStorage.removeItem(TOURED);
  }

  private async tryToken(): Promise<void> {
    try {
      await token();
      this.entry = "in";
    } catch (error) {
      // A server that is away is no reason to ask for a token: the chat says so, and comes back.
      this.entry = error instanceof Locked ? "locked" : "in";
    }
    if (this.entry === "in") await this.lookAtChoices();
  }
}

/** The one state of the page. */
export const app = new App();
