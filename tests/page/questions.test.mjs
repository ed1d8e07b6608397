// Questions of runs: they are asked on the page, answered there or elsewhere, and still there after a reload.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { SIZES } from "./screens.mjs";
import { setUp } from "./setup.mjs";

const extraSettings = `
[policy]
mode = "full"
enforce_all = true
ask = [{ tool = "shell" }]
`;
const { server, openPage } = await setUp({ extraSettings });
const card = (tab) => tab.page.locator('[data-question="pending"]');
const settled = (tab, outcome) => tab.page.locator(`[data-question="${outcome}"]`);
const button = (tab, name) => card(tab).getByRole("button", { name, exact: true });

test("a question shows the exact call, survives a reload, and an answer lets the run go on", async () => {
  const tab = await openPage();
  await tab.send("!echo allowed; true");
  await card(tab).getByRole("group", { name: "Exactly this" }).getByText("echo allowed; true", { exact: true }).waitFor();
  await card(tab).getByText('the rule of parlor.toml says ask { tool = "shell" }').waitFor();
  // No rule can name a chain of commands.
  assert.equal(await button(tab, "Always here").count(), 0);
  await tab.page.getByRole("button", { name: "Waiting for your answer" }).waitFor();
  await tab.page.getByRole("navigation").getByRole("link", { name: /echo allowed.*asks a question/ }).waitFor();
  assert.match(await tab.page.title(), /^\? /);
  await tab.page.reload();
  await button(tab, "Deny").waitFor();
  await tab.waitForConnection("open");
  assert.equal(await card(tab).count(), 1);
  await button(tab, "Allow once").click();
  await settled(tab, "once").getByText("Allowed once, through the page or the HTTP API.").waitFor();
  // The button is gone: the focus is on the line that took its place.
  await tab.page.locator('[data-question="once"]:focus').waitFor();
  const turn = await tab.waitForTurn("!echo allowed; true");
  await turn.locator(".answer").getByText("allowed").waitFor();
  await tab.page.reload();
  await settled(tab, "once").getByText("Allowed once").waitFor();
  assert.equal(await card(tab).count(), 0);
  await tab.page.getByRole("navigation").getByRole("link", { name: /asks a question/ }).waitFor({ state: "detached" });
  await tab.close();
});

test("a script's question can be denied by keyboard with a message", async () => {
  const tab = await openPage();
  await tab.page.getByLabel("Agent").selectOption("demo");
  await tab.send("deploy web");
  await button(tab, "Allow once").focus();
  await tab.page.keyboard.press("Tab");
  await tab.page.keyboard.type("not on a Friday");
  await tab.page.keyboard.press("Enter");
  await settled(tab, "deny").getByText("Denied, through the page or the HTTP API: not on a Friday").waitFor();
  await tab.page.locator('article:not([data-status="running"])').waitFor();
  await tab.page.locator("article .timeline > button").click();
  await tab.page.locator("article").getByText("the user refused this call: not on a Friday").first().waitFor();
  await tab.close();
});

test("an answer that is remembered is not asked for again", async () => {
  const tab = await openPage();
  await tab.send("!true remembered");
  await button(tab, "Always here").click();
  await settled(tab, "always").waitFor();
  await tab.waitForTurn("!true remembered");
  await tab.send("!true remembered");
  await tab.page.locator('article[data-status="completed"]').nth(1).waitFor();
  assert.equal(await tab.page.locator("[data-question]").count(), 1);
  await tab.close();
});

test("of two tabs the second to answer is told what the first answered", async () => {
  await server.sendAll("asked-twice", ["/say before"]);
  const first = await openPage({ path: "/#/chat/asked-twice", allow: NETWORK });
  await first.send("!echo twice");
  await button(first, "Allow once").waitFor();
  const second = await first.openTab("/#/chat/asked-twice");
  await first.waitForConnection("replaced");
  await button(second, "Deny").click();
  await settled(second, "deny").waitFor();
  await button(first, "Allow once").click();
  await settled(first, "deny").getByText("Your answer came too late and changed nothing: it was denied.").waitFor();
  assert.deepEqual(second.consoleErrors, []);
  await first.close();
});

test("an answer from elsewhere, and the end of the run, settle the question on the page", async () => {
  await server.sendAll("elsewhere", ["/say before"]);
  const tab = await openPage({ path: "/#/chat/elsewhere" });
  await tab.send("!echo elsewhere");
  await card(tab).waitFor();
  await server.run("chat", "--session", "elsewhere", "--answer", "deny", "not from here");
  await settled(tab, "deny").getByText("Denied, through chat: not from here").waitFor();
  await tab.waitForTurn("!echo elsewhere");
  await tab.send("!echo stopped");
  await card(tab).waitFor();
  await tab.page.keyboard.press("Escape");
  await settled(tab, "withdrawn").getByText("Withdrawn").waitFor();
  await tab.waitForTurn("!echo stopped", "stopped");
  await tab.close();
});

test("the list of sessions marks a session that asks", async () => {
  await server.sendAll("listed", ["/say before"]);
  const tab = await openPage({ path: "/#/sessions" });
  const other = await tab.openTab("/#/chat/listed");
  await other.send("!echo listed");
  await card(other).waitFor();
  const row = tab.page.locator('[data-session="listed"]');
  await row.getByText("Asks a question").waitFor();
  await tab.checkAccessibility("a session that asks, in the list");
  await button(other, "Deny").click();
  await row.getByText("Idle").waitFor();
  assert.deepEqual(other.consoleErrors, []);
  await tab.close();
});

test("a question is accessible and fits the viewport, also if its command is long", async () => {
  const tab = await openPage();
  const command = `!echo ${"x".repeat(300)} ${"and more words ".repeat(300)}\u202e`;
  await tab.send(command);
  await card(tab).getByText(/\\u\{202e\}/).first().waitFor();
  for (const [width, height] of SIZES) {
    await tab.page.setViewportSize({ width, height });
    await tab.page.waitForFunction((width) => innerWidth === width && document.documentElement.scrollWidth <= width, width, { polling: 100 });
    assert.ok(await card(tab).getByRole("group", { name: "Exactly this" }).evaluate(({ clientHeight }) => clientHeight <= 16 * 16));
  }
  for (const colorScheme of ["light", "dark"]) {
    await tab.page.emulateMedia({ colorScheme });
    await tab.checkAccessibility(`a question, ${colorScheme}`);
  }
  await button(tab, "Deny").click();
  await settled(tab, "deny").waitFor();
  for (const colorScheme of ["light", "dark"]) {
    await tab.page.emulateMedia({ colorScheme });
    await tab.checkAccessibility(`a settled question, ${colorScheme}`);
  }
  await tab.close();
});
