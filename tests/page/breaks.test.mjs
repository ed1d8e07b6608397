// What breaks: the server, the connection, the token, and two windows that want the same conversation.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { until } from "./server.mjs";
import { setUp } from "./stage.mjs";

const { server, browser, visit } = await setUp();
/** Whether the page makes something of Esc. */
const takesEscape = (at) => at.page.evaluate(() => !document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true })));
const asked = (at) => at.page.locator("article .asked p:first-child").allInnerTexts();

test("a server that is killed in mid answer and comes back loses nothing and doubles nothing", async () => {
  const at = await visit({ allow: NETWORK });
  await at.say("/say before");
  await at.ended("/say before");
  await at.say("/wait 60");
  await at.page.locator('article[data-status="running"] .answer').waitFor();
  await at.say("/say queued");
  await at.page.locator('article[data-status="queued"]').waitFor();
  await server.kill();
  await at.connection("waiting");
  await at.page.getByText("The server does not answer.").waitFor();
  const stop = at.page.getByRole("button", { name: "Stop" });
  assert.equal(await stop.isDisabled(), true);
  assert.match(await stop.getAttribute("title"), /when it is back/);
  assert.equal(await takesEscape(at), false);
  await at.say("/say meanwhile");
  await at.turn("/say meanwhile").getByText("Sending").waitFor();
  await server.start();
  await at.connection("open");
  const cut = await at.ended("/wait 60", "failed");
  await cut.getByText("RUN_INTERRUPTED").waitFor();
  await cut.getByRole("button", { name: "Try again" }).waitFor();
  await at.ended("/say meanwhile");
  await at.ended("/say queued");
  assert.deepEqual(await asked(at), ["/say before", "/wait 60", "/say queued", "/say meanwhile"]);
  await at.page.reload();
  await at.ended("/say meanwhile");
  assert.deepEqual(await asked(at), ["/say before", "/wait 60", "/say queued", "/say meanwhile"]);
  await at.end();
});

test("what waited while one was elsewhere is there once, and is not sent again", async () => {
  await server.fill("left", ["/say before"], "local");
  const at = await visit();
  await at.page.goto(`${server.address}/#/chat/left`);
  await at.ended("/say before");
  await at.say("/wait 60");
  await at.page.locator('article[data-status="running"]').waitFor();
  await at.say("/say behind");
  await at.page.locator('article[data-status="queued"]').waitFor();
  assert.equal(await at.page.evaluate(() => sessionStorage.getItem("parlor.outbox.left")), null);
  // As if the page had been left before it heard that the message was taken.
  const key = await at.page.evaluate(async () => {
    const { events } = await (await fetch("/api/sessions/left/events")).json();
    return events.find(({ type }) => type === "run.queued").payload.key;
  });
  await at.page.goto(`${server.address}/#/house`);
  await at.page.evaluate((key) => sessionStorage.setItem("parlor.outbox.left", JSON.stringify([{ content: "/say behind", key }])), key);
  await at.page.goto(`${server.address}/#/chat/left`);
  await at.page.reload();
  await at.page.locator('article[data-status="queued"]').waitFor();
  await at.page.getByRole("button", { name: "Stop" }).click();
  await at.ended("/say behind");
  await at.page.reload();
  await at.ended("/say behind");
  assert.deepEqual(await asked(at), ["/say before", "/wait 60", "/say behind"]);
  assert.equal(await at.page.evaluate(() => sessionStorage.getItem("parlor.outbox.left")), null);
  await at.end();
});

test("what was taken long before a reload stands in its place, and is not sent again", async () => {
  await server.fill("far", ["/say before"], "local");
  const at = await browser.visit(server, { path: "/#/chat/far" });
  // A page that hears nothing while it is told so: the server takes what it says, and it does not know.
  await at.page.addInitScript(() => {
    const { set } = Object.getOwnPropertyDescriptor(WebSocket.prototype, "onmessage");
    Object.defineProperty(WebSocket.prototype, "onmessage", { set(hear) { set.call(this, (event) => window.isDeaf || hear(event)); } });
  });
  await at.begin();
  await at.ended("/say before");
  await at.connection("open");
  await at.page.evaluate(() => (window.isDeaf = true));
  await at.say("/say early");
  await at.turn("/say early").getByText("Sending").waitFor();
  await until("a message that is taken", async () => (await (await fetch(`${server.address}/api/sessions/far`)).text()).includes("/say early"));
  await server.fill("far", Array.from({ length: 150 }, (_, index) => `/say later ${index}`), "local");
  const newest = await (await fetch(`${server.address}/api/sessions/far/events?limit=300`)).text();
  assert.equal(newest.includes("/say early"), false, "more than a page was to come after it");
  const sent = [];
  at.page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => sent.push(JSON.parse(payload))));
  await at.page.reload();
  await at.ended("/say later 149");
  await at.connection("open");
  assert.equal(await at.page.evaluate(() => sessionStorage.getItem("parlor.outbox.far")), null);
  assert.equal(await at.page.locator('article[data-status="pending"]').count(), 0);
  await at.say("/say now");
  await at.ended("/say now");
  assert.deepEqual(sent.filter(({ type }) => type === "message.send").map(({ payload }) => payload.content), ["/say now"]);
  assert.equal("after" in sent[0].payload, false);
  await until("its place", async () => {
    await at.page.getByRole("region", { name: "Conversation" }).evaluate((element) => (element.scrollTop = 0));
    return at.turn("/say before").isVisible();
  });
  assert.deepEqual((await asked(at)).slice(0, 3), ["/say before", "/say early", "/say later 0"]);
  await at.end();
});

test("a conversation whose first answer breaks off is asked for again", async () => {
  const at = await visit();
  await at.say("/say whole");
  await at.ended("/say whole");
  let count = 0;
  await at.page.route("**/events?*", (route) => (count++ ? route.continue() : route.fulfill({ status: 200, contentType: "application/json", body: '{"events":[' })));
  await at.page.reload();
  await at.ended("/say whole");
  await at.connection("open");
  assert.equal(count, 2);
  await at.end();
});

test("a file that was sent while the server was away is sent when one comes back to its conversation", async () => {
  const at = await visit({ allow: NETWORK });
  await at.say("/say first");
  await at.ended("/say first");
  const session = await at.page.evaluate(() => localStorage.getItem("parlor.session"));
  await server.kill();
  await at.connection("waiting");
  await at.page.locator("input[type=file]").setInputFiles({ name: "note.txt", mimeType: "text/plain", buffer: Buffer.from("kept") });
  await at.say("/say with a file");
  await at.turn("/say with a file").getByText("Sending").waitFor();
  await at.page.getByText("sent when it is back and this conversation is open").waitFor();
  await at.page.keyboard.press("Alt+n");
  await at.turn("/say with a file").waitFor({ state: "detached" });
  await server.start();
  await at.connection("open");
  await at.page.goto(`${server.address}/#/chat/${session}`);
  const turn = await at.ended("/say with a file");
  await turn.getByText("note.txt").first().waitFor();
  assert.equal((await at.page.locator("article").count()), 2);
  await at.end();
});

test("a network that goes and comes back is noticed at once", async () => {
  const at = await visit({ allow: NETWORK });
  await at.connection("open");
  await at.context.setOffline(true);
  await at.connection("waiting");
  await at.say("/say offline");
  await at.turn("/say offline").getByText("Sending").waitFor();
  await at.context.setOffline(false);
  await at.ended("/say offline");
  await at.end();
});

test("what was written while the server was away survives a reload", async () => {
  const at = await browser.visit(server);
  // Held back on the way: the page believes that it was sent, and nobody has taken it.
  await at.page.addInitScript(() => {
    const { send } = WebSocket.prototype;
    WebSocket.prototype.send = function (text) {
      if (!sessionStorage.getItem("isHeldBack")) send.call(this, text);
    };
  });
  await at.begin();
  await at.say("/say first");
  await at.ended("/say first");
  await at.page.evaluate(() => sessionStorage.setItem("isHeldBack", "1"));
  await at.page.reload();
  await at.connection("open");
  await at.say("/say kept");
  await at.turn("/say kept").getByText("Sending").waitFor();
  await at.page.evaluate(() => sessionStorage.removeItem("isHeldBack"));
  await at.page.reload();
  await at.ended("/say kept");
  assert.deepEqual(await asked(at), ["/say first", "/say kept"]);
  await at.end();
});

test("a screen that could not be fetched says so, and is there when the server is back", async () => {
  const at = await visit({ allow: NETWORK });
  await at.page.getByRole("link", { name: "Terminals", exact: true }).waitFor();
  await at.field.fill("not yet said");
  await at.page.locator("input[type=file]").setInputFiles({ name: "chosen.txt", mimeType: "text/plain", buffer: Buffer.from("chosen") });
  await at.page.getByText("chosen.txt").waitFor();
  await server.kill();
  const loaded = at.page.getByRole("button", { name: "New terminal" });
  await at.page.getByRole("link", { name: "Terminals", exact: true }).click();
  await at.page.getByRole("heading", { name: "This screen could not be loaded." }).waitFor();
  await at.page.getByText("Files do not: choose “chosen.txt” again then.").waitFor();
  await at.page.getByRole("button", { name: "Try again" }).click();
  await at.page.getByText("The server does not answer yet.").waitFor();
  await server.start();
  await at.page.getByRole("button", { name: "Try again" }).click();
  await loaded.waitFor();
  await at.page.getByRole("link", { name: "Chat", exact: true }).click();
  await at.field.waitFor();
  assert.equal(await at.field.inputValue(), "not yet said");
  await at.end();
});

test("a message with files that is not sent yet is not lost by a screen that could not be fetched", async () => {
  const at = await browser.visit(server, { allow: NETWORK });
  // Held back on the way: the page believes that it was sent, and nobody has taken it.
  await at.page.routeWebSocket(/supr\/ws/, () => undefined);
  await at.begin();
  await at.page.locator("input[type=file]").setInputFiles({ name: "on its way.txt", mimeType: "text/plain", buffer: Buffer.from("kept") });
  await at.say("/say with a file");
  await at.turn("/say with a file").getByText("Sending").waitFor();
  await at.page.route(/UsageView.*\.js/, (route) => route.abort());
  await at.page.getByRole("link", { name: "Usage", exact: true }).click();
  const again = at.page.getByRole("button", { name: "Try again" });
  await again.click();
  await at.page.getByText("“on its way.txt” would be lost: the message is not sent yet.").waitFor();
  await at.page.getByRole("link", { name: "Chat", exact: true }).click();
  await at.turn("/say with a file").getByText("Sending").waitFor();
  await at.page.getByRole("link", { name: "Usage", exact: true }).click();
  await again.click();
  await at.page.getByText("would be lost").waitFor();
  // Who asks once more goes without it.
  await at.page.unroute(/UsageView.*\.js/);
  await again.click();
  await at.page.getByRole("button", { name: "7 days" }).waitFor();
  await at.end();
});

test("a second window takes over, calmly, and gives back", async () => {
  const first = await visit();
  await first.say("/say one");
  await first.ended("/say one");
  const second = await first.another(`/${new URL(first.page.url()).hash}`);
  await second.ended("/say one");
  await first.connection("elsewhere");
  await first.page.getByText("This conversation is open in another window.").waitFor();
  const taken = (at) => at.page.getByText("It goes on here now.");
  await taken(second).waitFor();
  assert.equal(await first.field.isDisabled(), true);
  await second.say("/say two");
  await taken(second).waitFor({ state: "detached" });
  await second.ended("/say two");
  await first.page.getByRole("button", { name: "Use here" }).click();
  await first.connection("open");
  await second.connection("elsewhere");
  await first.ended("/say two");
  // Who has asked for it need not be told.
  assert.equal(await taken(first).count(), 0);
  await first.say("/say three");
  await first.ended("/say three");
  assert.deepEqual(await asked(first), ["/say one", "/say two", "/say three"]);
  assert.deepEqual(second.complaints, []);
  await first.end();
});

test("a window that was taken over stops nothing, and says so", async () => {
  await server.fill("taken", ["/say before"]);
  const first = await visit({ path: "/#/chat/taken" });
  await first.say("/wait 60");
  const stop = first.page.getByRole("button", { name: "Stop" });
  await stop.waitFor();
  assert.equal(await stop.getAttribute("title"), "Stop (Esc)");
  const second = await first.another("/#/chat/taken");
  await first.connection("elsewhere");
  assert.equal(await stop.isDisabled(), true);
  assert.match(await stop.getAttribute("title"), /another window/);
  assert.equal(await takesEscape(first), false);
  await second.page.getByRole("button", { name: "Stop" }).waitFor();
  await first.page.getByRole("button", { name: "Use here" }).click();
  await first.connection("open");
  assert.equal(await takesEscape(first), true);
  await first.ended("/wait 60", "stopped");
  assert.deepEqual(second.complaints, []);
  await first.end();
});

test("from elsewhere a token is needed; one that was replaced is asked for again", async () => {
  const at = await visit({ allow: NETWORK, extraHTTPHeaders: { "X-Forwarded-For": "203.0.113.9" } });
  const token = at.page.getByLabel("Token");
  await token.fill("not-the-token");
  await at.page.getByRole("button", { name: "Come in" }).click();
  await at.page.getByRole("alert").getByText("does not take this token").waitFor();
  await token.fill(await server.token());
  await at.page.getByRole("button", { name: "Come in" }).click();
  await at.say("/say let in");
  await at.ended("/say let in");
  await at.field.fill("begun before");
  await server.run("token", "--rotate");
  await at.page.getByRole("alert").getByText("holds no longer").waitFor();
  await token.fill(await server.token());
  await token.press("Enter");
  await at.ended("/say let in");
  assert.equal(await at.field.inputValue(), "begun before");
  await at.say("/say again");
  await at.ended("/say again");
  assert.deepEqual(await asked(at), ["/say let in", "/say again"]);
  await at.end();
});

test("on this machine a new token is noticed by nobody", async () => {
  const at = await visit();
  await at.connection("open");
  await server.run("token", "--rotate");
  await at.page.reload();
  await at.say("/say still here");
  await at.ended("/say still here");
  await at.end();
});

test("who has said too much at once waits until some of it is taken", async () => {
  const visit = await browser.visit(server, { path: "/#/chat/full", allow: NETWORK });
  await visit.page.addInitScript(() => {
    const waiting = Array.from({ length: 64 }, (_, index) => ({ content: `/say ${index}`, key: `full-${index}` }));
    sessionStorage.setItem("parlor.outbox.full", JSON.stringify(waiting));
  });
  await visit.page.routeWebSocket(/supr\/ws/, () => undefined);
  const at = await visit.begin();
  await at.page.getByRole("alert").getByText("Many messages wait").waitFor();
  await at.field.fill("/say one more");
  assert.equal(await at.page.getByRole("button", { name: "Send" }).isDisabled(), true);
  await at.end();
});
