// A conversation of 10,000 messages: all of them can be read, and few are in the document at a time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TIMEOUT_MS, waitUntil } from "./server.mjs";
import { setUp } from "./setup.mjs";
import { LONG_SESSION, messages, TURNS } from "./long-conversation.mjs";

const path = `/#/chat/${LONG_SESSION}`;
const last = new RegExp(`^Number ${TURNS}\\.`);

/** The document never has more rows than this. */
const MAX_ROWS = 60;

const { server, openPage } = await setUp();

test("10,000 messages can be read from the last to the first", { timeout: 10 * TIMEOUT_MS }, async () => {
  await server.sendAll(LONG_SESSION, messages());
  const tab = await openPage({ path });
  await tab.page.getByText(last).waitFor();
  const scroller = tab.page.getByRole("region", { name: "Conversation" });
  const rows = () => tab.page.locator("article").count();
  assert.ok((await rows()) < MAX_ROWS);

  await waitUntil("the beginning", async () => {
    await scroller.evaluate((element) => (element.scrollTop = 0));
    assert.ok((await rows()) < MAX_ROWS);
    return (await tab.page.getByText("Beginning of the conversation").isVisible()) && tab.page.getByText(/^Number 1\./).isVisible();
  });
  await tab.page.getByRole("button", { name: "Go to the end" }).click();
  await tab.page.getByText(last).waitFor();
  await tab.send("/say and on it goes");
  await tab.waitForTurn("/say and on it goes");
  await tab.close();
});

test("the text on the screen does not move while an answer grows below", async () => {
  const tab = await openPage({ path });
  await tab.waitForTurn("/say and on it goes");
  await tab.send("/wait 60");
  await tab.page.locator('article[data-status="running"] .answer').waitFor();
  const moved = await tab.page.getByRole("region", { name: "Conversation" }).evaluate(async (element) => {
    const frame = () => new Promise(requestAnimationFrame);
    element.scrollTop -= 1500;
    // New rows are measured first.
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
  await tab.page.getByRole("button", { name: "Stop" }).click();
  await tab.close();
});
