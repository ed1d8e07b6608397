// A conversation of 10,000 messages: all of it can be read, and little of it is in the document.
import assert from "node:assert/strict";
import { test } from "node:test";
import { PATIENCE, until } from "./server.mjs";
import { setUp } from "./stage.mjs";
import { LONG, TURNS, words } from "./talk.mjs";

const path = `/#/chat/${LONG}`;
const last = new RegExp(`^Number ${TURNS}\\.`);

/** More rows than this are not in the document, however long the conversation. */
const MAX_ROWS = 60;

const { server, visit } = await setUp();

test("10,000 messages can be read from the last to the first", { timeout: 10 * PATIENCE }, async () => {
  await server.fill(LONG, words());
  const at = await visit({ path });
  await at.page.getByText(last).waitFor();
  const scroller = at.page.getByRole("region", { name: "Conversation" });
  const rows = () => at.page.locator("article").count();
  assert.ok((await rows()) < MAX_ROWS);

  await until("the beginning", async () => {
    await scroller.evaluate((element) => (element.scrollTop = 0));
    assert.ok((await rows()) < MAX_ROWS);
    return (await at.page.getByText("This is where it begins.").isVisible()) && at.page.getByText(/^Number 1\./).isVisible();
  });
  await at.page.getByRole("button", { name: "To the end" }).click();
  await at.page.getByText(last).waitFor();
  await at.say("/say and on it goes");
  await at.ended("/say and on it goes");
  await at.end();
});

test("what one reads stays where it is while an answer is written below", async () => {
  const at = await visit({ path });
  await at.ended("/say and on it goes");
  await at.say("/wait 60");
  await at.page.locator('article[data-status="running"] .answer').waitFor();
  const moved = await at.page.getByRole("region", { name: "Conversation" }).evaluate(async (element) => {
    const frame = () => new Promise(requestAnimationFrame);
    element.scrollTop -= 1500;
    // Rows that were never on the screen are measured first.
    for (let index = 0; index < 10; index++) await frame();
    const row = [...element.querySelectorAll(".row")].find((candidate) => candidate.getBoundingClientRect().top > 100);
    const begin = row.getBoundingClientRect().top;
    const seen = new Set();
    for (let index = 0; index < 60; index++) {
      await frame();
      seen.add(Math.round(row.getBoundingClientRect().top - begin));
    }
    return [...seen];
  });
  assert.deepEqual(moved, [0]);
  await at.page.getByRole("button", { name: "Stop" }).click();
  await at.end();
});
