// The page shows why the server rejects its socket, although the browser hides the answer to the handshake.
import assert from "node:assert/strict";
import { test } from "node:test";
import { WebSocket } from "ws";
import { NETWORK } from "./browser.mjs";
import { Server } from "./server.mjs";
import { setUp } from "./setup.mjs";

const { server, browser, openPage } = await setUp();
const INVALID_ID = "a".repeat(300);

/** Starts a server with extra settings for one test. */
async function serverWith(t, extraSettings) {
  const other = await Server.start({ extraSettings });
  t.after(() => other.stop());
  return other;
}

test("an invalid session id is reported and forgotten, and the page offers a new chat", async () => {
  const tab = await openPage({ path: `/#/chat/${INVALID_ID}`, allow: NETWORK });
  await tab.page.getByText("The address of this page is invalid: session_id is longer than 256 bytes.").waitFor();
  await tab.waitForConnection("invalid-session");
  assert.equal(await tab.messageField.isDisabled(), true);
  assert.equal(new URL(tab.page.url()).hash, "#/chat/");
  await tab.checkAccessibility("an invalid session id");
  await tab.page.getByRole("button", { name: "Start a new chat" }).click();
  await tab.send("/say better");
  await tab.waitForTurn("/say better");
  await tab.close();
});

test("an invalid session id in the browser's storage is deleted", async () => {
  const tab = await browser.newPage(server, { allow: NETWORK });
  await tab.page.addInitScript((name) => {
    if (sessionStorage.getItem("seen")) return;
    sessionStorage.setItem("seen", "1");
    localStorage.setItem("parlor.session", name);
    sessionStorage.setItem(`parlor.outbox.${name}`, JSON.stringify([{ content: "/say lost", key: "k" }]));
  }, INVALID_ID);
  await tab.open();
  await tab.waitForConnection("invalid-session");
  const kept = await tab.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
  assert.equal(kept.includes(INVALID_ID), false);
  await tab.page.getByRole("link", { name: "Sessions", exact: true }).click();
  // The error of one conversation is not shown on the sessions screen.
  await tab.waitForConnection("open");
  await tab.page.getByRole("link", { name: "Chat", exact: true }).click();
  await tab.waitForConnection("open");
  await tab.close();
});

test("the page reports a full server, and connects when a connection is free", async (t) => {
  const full = await serverWith(t, "[channels.supr]\nmax_connections = 1\n");
  const first = new WebSocket(`ws://${full.listen}/supr/ws?session_id=first`, [`token.${await full.token()}`]);
  await new Promise((resolve, reject) => first.once("open", resolve).once("error", reject));
  const tab = await (await browser.newPage(full, { allow: NETWORK })).open();
  await tab.page.getByText("The server has reached its limit of connections").waitFor();
  await tab.waitForConnection("refused");
  await tab.send("/say waiting");
  await tab.turn("/say waiting").getByText("Sending").waitFor();
  // Sending a message triggers another attempt, which fails too.
  await tab.waitForConnection("refused");
  const left = new Promise((resolve) => first.once("close", resolve));
  first.close();
  await left;
  // On a slow machine the page may connect by itself before the click.
  await tab.page.getByRole("button", { name: "Try now" }).click({ timeout: 5_000 }).catch(() => undefined);
  await tab.waitForTurn("/say waiting");
  await tab.close();
});

test("the server's own page connects although only another origin is allowed", async (t) => {
  const strict = await serverWith(t, '[channels.supr]\nallow_origins = ["https://elsewhere.example"]\n');
  const tab = await (await browser.newPage(strict)).open();
  await tab.send("/say from the own page");
  await tab.waitForTurn("/say from the own page");
  await tab.close();
});
