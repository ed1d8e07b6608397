// State of the whole page: whether the server lets this browser in, what the user can choose for a message, and the colour theme.
import { type Choices, claimToken, loadChoices, loadToken, NotFoundError, UnauthorizedError } from "../protocol/http";
import { setToken, takeCodeFromAddress, takeStoredToken } from "../protocol/token";

/** `auto` follows the system. */
export type Theme = "auto" | "light" | "dark";

const THEME_KEY = "parlor.theme";
const TOUR_DONE_KEY = "parlor.toured";

class App {
  /** `unknown` until the server has said whether it requires a token. */
  access: "unknown" | "locked" | "granted" = $state("unknown");
  /** Why the server rejected the last token or link. */
  accessError = $state("");
  choices: Choices | null = $state.raw(null);
  theme: Theme = $state((localStorage.getItem(THEME_KEY) as Theme | null) ?? "auto");
  isTourDone = $state(localStorage.getItem(TOUR_DONE_KEY) !== null);

  /** Asks the server for access at the start of the page, with the code of a one-time link if the address has one. */
  async requestAccess(): Promise<void> {
    const code = takeCodeFromAddress();
    const oldToken = takeStoredToken();
    if (code) {
      try {
        setToken((await claimToken({ code })).token);
      } catch (error) {
        this.accessError = error instanceof NotFoundError ? "This server has no one-time links." : "This link is used or expired. Start parlor again to get another link, or enter the token.";
      }
    } else if (oldToken) {
      // An invalid token is no error here: `checkAccess` finds out.
      await claimToken({ token: oldToken }).then(({ token }) => setToken(token), () => undefined);
    }
    await this.checkAccess();
  }

  /** Tries the token that the user entered. */
  async unlock(text: string): Promise<void> {
    this.accessError = "";
    try {
      setToken((await claimToken({ token: text.trim() })).token);
    } catch (error) {
      this.accessError = error instanceof UnauthorizedError ? "The server does not accept this token." : (error as Error).message;
      return;
    }
    await this.checkAccess();
  }

  /** Called when the server rejects the token that it accepted before. */
  lock(): void {
    if (this.access === "granted") this.accessError = "The server no longer accepts the token of this browser.";
    setToken("");
    this.access = "locked";
  }

  /** Loads the choices again, because a key or a model may have been added. Keeps the old ones if that fails. */
  async refreshChoices(): Promise<void> {
    try {
      this.choices = await loadChoices();
    } catch {
      // An older server has no choices; an unreachable one is asked again later.
    }
  }

  setTheme(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem(THEME_KEY, theme);
  }

  /** Ends the tour, or shows it again. */
  setTourDone(isDone: boolean): void {
    this.isTourDone = isDone;
    if (isDone) localStorage.setItem(TOUR_DONE_KEY, "1");
    else localStorage.removeItem(TOUR_DONE_KEY);
  }

  private async checkAccess(): Promise<void> {
    try {
      await loadToken();
      this.access = "granted";
    } catch (error) {
      // An unreachable server is no reason to ask for a token: the chat reports it and reconnects.
      this.access = error instanceof UnauthorizedError ? "locked" : "granted";
    }
    if (this.access === "granted") await this.refreshChoices();
  }
}

/** The only instance. */
export const app = new App();
