// A conversation of 10,000 messages, half of them answers.

/** The id of its session. */
export const LONG_SESSION = "long";

/** How many messages the user sends; each is answered. */
export const TURNS = 5_000;

/** The user's messages. */
export function* messages() {
  for (let number = 1; number <= TURNS; number++) yield `/say Number ${number}. ${"and some more words ".repeat(number % 9)}`;
}
