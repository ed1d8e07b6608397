// A long conversation: 10,000 messages, half of them answers.

/** The session that it is in. */
export const LONG = "long";

/** How many things are said; each is answered. */
export const TURNS = 5_000;

/** What is said. */
export function* words() {
  for (let number = 1; number <= TURNS; number++) yield `/say Number ${number}. ${"and some more words ".repeat(number % 9)}`;
}
