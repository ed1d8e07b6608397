// Who is not let in is told why: a browser itself does not tell what a server answered to a handshake.
import assert from "node:assert/strict";
import { test } from "node:test";
import { WebSocket } from "ws";
import { NETWORK } from "./browser.mjs";
import { Server } from "./server.mjs";
import { setUp } from "./stage.mjs";

const { server, browser, visit } = await setUp();
const LONG_NAME = "a".repeat(300);

/** A server with other settings, for one test. */
async function serverWith(t, more) {
  const other = await Server.start({ more });
  t.after(() => other.stop());
  return other;
}

test("a name that no session can have is told, kept nowhere, and a new chat is offered", async () => {
  const at = await visit({ path: `/#/chat/${LONG_NAME}`, allow: NETWORK });
  await at.page.getByText("The address leads nowhere: session_id is longer than 256 bytes.").waitFor();
  await at.connection("misnamed");
  assert.equal(await at.field.isDisabled(), true);
  assert.equal(new URL(at.page.url()).hash, "#/chat/");
  await at.isAccessible("a chat without a name");
  await at.page.getByRole("button", { name: "Begin a new one" }).click();
  await at.say("/say better");
  await at.ended("/say better");
  await at.end();
});

test("such a name in the memory of the browser is forgotten", async () => {
  const at = await browser.visit(server, { allow: NETWORK });
  await at.page.addInitScript((name) => {
    if (sessionStorage.getItem("seen")) return;
    sessionStorage.setItem("seen", "1");
    localStorage.setItem("parlor.session", name);
    sessionStorage.setItem(`parlor.outbox.${name}`, JSON.stringify([{ content: "/say lost", key: "k" }]));
  }, LONG_NAME);
  await at.begin();
  await at.connection("misnamed");
  const kept = await at.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
  assert.equal(kept.includes(LONG_NAME), false);
  await at.page.getByRole("link", { name: "House", exact: true }).click();
  // What is wrong with one conversation is not told of the house.
  await at.connection("open");
  await at.page.getByRole("link", { name: "Chat", exact: true }).click();
  await at.connection("open");
  await at.end();
});

test("a server that is full says so, and lets in when there is a place", async (t) => {
  const full = await serverWith(t, "[channels.supr]\nmax_connections = 1\n");
  const first = new WebSocket(`ws://${full.listen}/supr/ws?session_id=first`, [`token.${await full.token()}`]);
  await new Promise((resolve, reject) => first.once("open", resolve).once("error", reject));
  const at = await (await browser.visit(full, { allow: NETWORK })).begin();
  await at.page.getByText("The server is full").waitFor();
  await at.connection("barred");
  await at.say("/say patience");
  await at.turn("/say patience").getByText("Sending").waitFor();
  // To say something is to try again; it is in vain.
  await at.connection("barred");
  const left = new Promise((resolve) => first.once("close", resolve));
  first.close();
  await left;
  // On a slow machine the page may have come in by itself before the button is reached.
  await at.page.getByRole("button", { name: "Try now" }).click({ timeout: 5_000 }).catch(() => undefined);
  await at.ended("/say patience");
  await at.end();
});

test("a server that does not know the address of the page names the setting", async (t) => {
  const strict = await serverWith(t, '[channels.supr]\nallow_origins = ["https://elsewhere.example"]\n');
  const at = await (await browser.visit(strict, { allow: NETWORK })).begin();
  await at.page.getByText(`allow_origins of [channels.supr], if it is set, has to name ${strict.address}`).waitFor();
  await at.end();
});
