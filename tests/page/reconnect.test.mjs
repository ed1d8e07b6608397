// Failures: of the server, the connection and the token, and two tabs with the same conversation.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { waitUntil } from "./server.mjs";
import { setUp } from "./setup.mjs";

const { server, browser, openPage } = await setUp();
/** Whether the page handles Esc. */
const handlesEscape = (tab) => tab.page.evaluate(() => !document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true })));
const prompts = (tab) => tab.page.locator("article .prompt p:first-child").allInnerTexts();

test("after a kill and restart of the server no message is lost or sent twice", async () => {
  const tab = await openPage({ allow: NETWORK });
  await tab.send("/say before");
  await tab.waitForTurn("/say before");
  await tab.send("/wait 60");
  await tab.page.locator('article[data-status="running"] .answer').waitFor();
  await tab.send("/say queued");
  await tab.page.locator('article[data-status="queued"]').waitFor();
  await server.kill();
  await tab.waitForConnection("reconnecting");
  await tab.page.getByText("The server does not answer.").waitFor();
  const stop = tab.page.getByRole("button", { name: "Stop" });
  assert.equal(await stop.isDisabled(), true);
  assert.match(await stop.getAttribute("title"), /when the server is back/);
  assert.equal(await handlesEscape(tab), false);
  await tab.send("/say meanwhile");
  await tab.turn("/say meanwhile").getByText("Sending").waitFor();
  await server.start();
  await tab.waitForConnection("open");
  const interrupted = await tab.waitForTurn("/wait 60", "failed");
  await interrupted.getByText("RUN_INTERRUPTED").waitFor();
  await interrupted.getByRole("button", { name: "Try again" }).waitFor();
  await tab.waitForTurn("/say meanwhile");
  await tab.waitForTurn("/say queued");
  assert.deepEqual(await prompts(tab), ["/say before", "/wait 60", "/say queued", "/say meanwhile"]);
  await tab.page.reload();
  await tab.waitForTurn("/say meanwhile");
  assert.deepEqual(await prompts(tab), ["/say before", "/wait 60", "/say queued", "/say meanwhile"]);
  await tab.close();
});

test("a message taken while another screen was open is shown once and not sent again", async () => {
  await server.sendAll("left", ["/say before"], "local");
  const tab = await openPage();
  await tab.page.goto(`${server.address}/#/chat/left`);
  await tab.waitForTurn("/say before");
  await tab.send("/wait 60");
  await tab.page.locator('article[data-status="running"]').waitFor();
  await tab.send("/say behind");
  await tab.page.locator('article[data-status="queued"]').waitFor();
  assert.equal(await tab.page.evaluate(() => sessionStorage.getItem("parlor.outbox.left")), null);
  // Restores the outbox, as if the page had been closed before it got the acknowledgement.
  const key = await tab.page.evaluate(async () => {
    const { events } = await (await fetch("/api/sessions/left/events")).json();
    return events.find(({ type }) => type === "run.queued").payload.key;
  });
  await tab.page.goto(`${server.address}/#/sessions`);
  await tab.page.evaluate((key) => sessionStorage.setItem("parlor.outbox.left", JSON.stringify([{ content: "/say behind", key }])), key);
  await tab.page.goto(`${server.address}/#/chat/left`);
  await tab.page.reload();
  await tab.page.locator('article[data-status="queued"]').waitFor();
  await tab.page.getByRole("button", { name: "Stop" }).click();
  await tab.waitForTurn("/say behind");
  await tab.page.reload();
  await tab.waitForTurn("/say behind");
  assert.deepEqual(await prompts(tab), ["/say before", "/wait 60", "/say behind"]);
  assert.equal(await tab.page.evaluate(() => sessionStorage.getItem("parlor.outbox.left")), null);
  await tab.close();
});

test("a message taken long before a reload keeps its position and is not sent again", async () => {
  await server.sendAll("far", ["/say before"], "local");
  const tab = await browser.newPage(server, { path: "/#/chat/far" });
  // While `isDeaf` is set, the page receives nothing: the server takes a message, and the page does not know.
  await tab.page.addInitScript(() => {
    const { set } = Object.getOwnPropertyDescriptor(WebSocket.prototype, "onmessage");
    Object.defineProperty(WebSocket.prototype, "onmessage", { set(listener) { set.call(this, (event) => window.isDeaf || listener(event)); } });
  });
  await tab.open();
  await tab.waitForTurn("/say before");
  await tab.waitForConnection("open");
  await tab.page.evaluate(() => (window.isDeaf = true));
  await tab.send("/say early");
  await tab.turn("/say early").getByText("Sending").waitFor();
  await waitUntil("the message is in the log", async () => (await (await fetch(`${server.address}/api/sessions/far`)).text()).includes("/say early"));
  await server.sendAll("far", Array.from({ length: 150 }, (_, index) => `/say later ${index}`), "local");
  const newest = await (await fetch(`${server.address}/api/sessions/far/events?limit=300`)).text();
  assert.equal(newest.includes("/say early"), false, "the message must not be on the newest page");
  const sent = [];
  tab.page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => sent.push(JSON.parse(payload))));
  await tab.page.reload();
  await tab.waitForTurn("/say later 149");
  await tab.waitForConnection("open");
  assert.equal(await tab.page.evaluate(() => sessionStorage.getItem("parlor.outbox.far")), null);
  assert.equal(await tab.page.locator('article[data-status="pending"]').count(), 0);
  await tab.send("/say now");
  await tab.waitForTurn("/say now");
  assert.deepEqual(sent.filter(({ type }) => type === "message.send").map(({ payload }) => payload.content), ["/say now"]);
  assert.equal("after" in sent[0].payload, false);
  await waitUntil("the beginning", async () => {
    await tab.page.getByRole("region", { name: "Conversation" }).evaluate((element) => (element.scrollTop = 0));
    return tab.turn("/say before").isVisible();
  });
  assert.deepEqual((await prompts(tab)).slice(0, 3), ["/say before", "/say early", "/say later 0"]);
  await tab.close();
});

test("the first page is requested again if the response breaks off", async () => {
  const tab = await openPage();
  await tab.send("/say whole");
  await tab.waitForTurn("/say whole");
  let count = 0;
  await tab.page.route("**/events?*", (route) => (count++ ? route.continue() : route.fulfill({ status: 200, contentType: "application/json", body: '{"events":[' })));
  await tab.page.reload();
  await tab.waitForTurn("/say whole");
  await tab.waitForConnection("open");
  assert.equal(count, 2);
  await tab.close();
});

test("a file sent while the server was down is delivered when its conversation is opened again", async () => {
  const tab = await openPage({ allow: NETWORK });
  await tab.send("/say first");
  await tab.waitForTurn("/say first");
  const session = await tab.page.evaluate(() => localStorage.getItem("parlor.session"));
  await server.kill();
  await tab.waitForConnection("reconnecting");
  await tab.page.locator("input[type=file]").setInputFiles({ name: "note.txt", mimeType: "text/plain", buffer: Buffer.from("kept") });
  await tab.send("/say with a file");
  await tab.turn("/say with a file").getByText("Sending").waitFor();
  await tab.page.getByText("when the server is back and this conversation is open").waitFor();
  await tab.page.keyboard.press("Alt+n");
  await tab.turn("/say with a file").waitFor({ state: "detached" });
  await server.start();
  await tab.waitForConnection("open");
  await tab.page.goto(`${server.address}/#/chat/${session}`);
  const turn = await tab.waitForTurn("/say with a file");
  await turn.getByText("note.txt").first().waitFor();
  assert.equal((await tab.page.locator("article").count()), 2);
  await tab.close();
});

test("the page notices at once when the network goes and returns", async () => {
  const tab = await openPage({ allow: NETWORK });
  await tab.waitForConnection("open");
  await tab.context.setOffline(true);
  await tab.waitForConnection("reconnecting");
  await tab.send("/say offline");
  await tab.turn("/say offline").getByText("Sending").waitFor();
  await tab.context.setOffline(false);
  await tab.waitForTurn("/say offline");
  await tab.close();
});

test("a message that the server did not receive survives a reload", async () => {
  const tab = await browser.newPage(server);
  // Drops the frames: the page has sent the message, but the server never receives it.
  await tab.page.addInitScript(() => {
    const { send } = WebSocket.prototype;
    WebSocket.prototype.send = function (text) {
      if (!sessionStorage.getItem("dropFrames")) send.call(this, text);
    };
  });
  await tab.open();
  await tab.send("/say first");
  await tab.waitForTurn("/say first");
  await tab.page.evaluate(() => sessionStorage.setItem("dropFrames", "1"));
  await tab.page.reload();
  await tab.waitForConnection("open");
  await tab.send("/say kept");
  await tab.turn("/say kept").getByText("Sending").waitFor();
  await tab.page.evaluate(() => sessionStorage.removeItem("dropFrames"));
  await tab.page.reload();
  await tab.waitForTurn("/say kept");
  assert.deepEqual(await prompts(tab), ["/say first", "/say kept"]);
  await tab.close();
});

test("a screen whose code could not be loaded says so, and loads when the server is back", async () => {
  const tab = await openPage({ allow: NETWORK });
  await tab.page.getByRole("link", { name: "Terminals", exact: true }).waitFor();
  await tab.messageField.fill("not yet said");
  await tab.page.locator("input[type=file]").setInputFiles({ name: "chosen.txt", mimeType: "text/plain", buffer: Buffer.from("chosen") });
  await tab.page.getByText("chosen.txt").waitFor();
  await server.kill();
  const loaded = tab.page.getByRole("button", { name: "New terminal" });
  await tab.page.getByRole("link", { name: "Terminals", exact: true }).click();
  await tab.page.getByRole("heading", { name: "This screen could not be loaded." }).waitFor();
  await tab.page.getByText("choose “chosen.txt” again afterwards").waitFor();
  await tab.page.getByRole("button", { name: "Try again" }).click();
  await tab.page.getByText("The server does not answer yet.").waitFor();
  await server.start();
  await tab.page.getByRole("button", { name: "Try again" }).click();
  await loaded.waitFor();
  await tab.page.getByRole("link", { name: "Chat", exact: true }).click();
  await tab.messageField.waitFor();
  assert.equal(await tab.messageField.inputValue(), "not yet said");
  await tab.close();
});

test("reloading after a failed screen warns before it loses an unsent file", async () => {
  const tab = await browser.newPage(server, { allow: NETWORK });
  // Drops the frames: the page has sent the message, but the server never receives it.
  await tab.page.routeWebSocket(/supr\/ws/, () => undefined);
  await tab.open();
  await tab.page.locator("input[type=file]").setInputFiles({ name: "on its way.txt", mimeType: "text/plain", buffer: Buffer.from("kept") });
  await tab.send("/say with a file");
  await tab.turn("/say with a file").getByText("Sending").waitFor();
  await tab.page.route(/UsageView.*\.js/, (route) => route.abort());
  await tab.page.getByRole("link", { name: "Usage", exact: true }).click();
  const retry = tab.page.getByRole("button", { name: "Try again" });
  await retry.click();
  await tab.page.getByText("A reload would lose “on its way.txt”: the message is not sent yet.").waitFor();
  await tab.page.getByRole("link", { name: "Chat", exact: true }).click();
  await tab.turn("/say with a file").getByText("Sending").waitFor();
  await tab.page.getByRole("link", { name: "Usage", exact: true }).click();
  await retry.click();
  await tab.page.getByText("A reload would lose").waitFor();
  // A second click reloads without the message.
  await tab.page.unroute(/UsageView.*\.js/);
  await retry.click();
  await tab.page.getByRole("button", { name: "7 days" }).waitFor();
  await tab.close();
});

test("a second tab takes the conversation over, and the first can take it back", async () => {
  const first = await openPage();
  await first.send("/say one");
  await first.waitForTurn("/say one");
  const second = await first.openTab(`/${new URL(first.page.url()).hash}`);
  await second.waitForTurn("/say one");
  await first.waitForConnection("replaced");
  await first.page.getByText("This conversation is open in another window and continues there.").waitFor();
  const takeoverNotice = (tab) => tab.page.getByText("It continues in this one.");
  await takeoverNotice(second).waitFor();
  assert.equal(await first.messageField.isDisabled(), true);
  await second.send("/say two");
  await takeoverNotice(second).waitFor({ state: "detached" });
  await second.waitForTurn("/say two");
  await first.page.getByRole("button", { name: "Use here" }).click();
  await first.waitForConnection("open");
  await second.waitForConnection("replaced");
  await first.waitForTurn("/say two");
  // The user asked for this takeover, so there is no notice.
  assert.equal(await takeoverNotice(first).count(), 0);
  await first.send("/say three");
  await first.waitForTurn("/say three");
  assert.deepEqual(await prompts(first), ["/say one", "/say two", "/say three"]);
  assert.deepEqual(second.consoleErrors, []);
  await first.close();
});

test("a tab that lost the conversation cannot stop its run", async () => {
  await server.sendAll("taken", ["/say before"]);
  const first = await openPage({ path: "/#/chat/taken" });
  await first.send("/wait 60");
  const stop = first.page.getByRole("button", { name: "Stop" });
  await stop.waitFor();
  assert.equal(await stop.getAttribute("title"), "Stop (Esc)");
  const second = await first.openTab("/#/chat/taken");
  await first.waitForConnection("replaced");
  assert.equal(await stop.isDisabled(), true);
  assert.match(await stop.getAttribute("title"), /another window/);
  assert.equal(await handlesEscape(first), false);
  await second.page.getByRole("button", { name: "Stop" }).waitFor();
  await first.page.getByRole("button", { name: "Use here" }).click();
  await first.waitForConnection("open");
  assert.equal(await handlesEscape(first), true);
  await first.waitForTurn("/wait 60", "stopped");
  assert.deepEqual(second.consoleErrors, []);
  await first.close();
});

test("from another machine the page asks for the token, and again after it was rotated", async () => {
  const tab = await openPage({ allow: NETWORK, extraHTTPHeaders: { "X-Forwarded-For": "203.0.113.9" } });
  const token = tab.page.getByLabel("Token");
  await token.fill("not-the-token");
  await tab.page.getByRole("button", { name: "Unlock" }).click();
  await tab.page.getByRole("alert").getByText("does not accept this token").waitFor();
  await token.fill(await server.token());
  await tab.page.getByRole("button", { name: "Unlock" }).click();
  await tab.send("/say let in");
  await tab.waitForTurn("/say let in");
  await tab.messageField.fill("begun before");
  await server.run("token", "--rotate");
  await tab.page.getByRole("alert").getByText("no longer accepts the token").waitFor();
  await token.fill(await server.token());
  await token.press("Enter");
  await tab.waitForTurn("/say let in");
  assert.equal(await tab.messageField.inputValue(), "begun before");
  await tab.send("/say again");
  await tab.waitForTurn("/say again");
  assert.deepEqual(await prompts(tab), ["/say let in", "/say again"]);
  await tab.close();
});

test("on the server's machine a rotated token has no effect", async () => {
  const tab = await openPage();
  await tab.waitForConnection("open");
  await server.run("token", "--rotate");
  await tab.page.reload();
  await tab.send("/say still here");
  await tab.waitForTurn("/say still here");
  await tab.close();
});

test("with too many unacknowledged messages the page sends no more", async () => {
  const newTab = await browser.newPage(server, { path: "/#/chat/full", allow: NETWORK });
  await newTab.page.addInitScript(() => {
    const waiting = Array.from({ length: 64 }, (_, index) => ({ content: `/say ${index}`, key: `full-${index}` }));
    sessionStorage.setItem("parlor.outbox.full", JSON.stringify(waiting));
  });
  await newTab.page.routeWebSocket(/supr\/ws/, () => undefined);
  const tab = await newTab.open();
  await tab.page.getByRole("alert").getByText("Too many messages wait").waitFor();
  await tab.messageField.fill("/say one more");
  assert.equal(await tab.page.getByRole("button", { name: "Send" }).isDisabled(), true);
  await tab.close();
});
