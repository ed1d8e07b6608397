// The sessions screen: sessions of all doors with their current state, search, renaming, deleting and resuming.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { Server, waitUntil } from "./server.mjs";
import { setUp } from "./setup.mjs";

const { server, browser, openPage } = await setUp({ path: "/#/sessions" });
const row = (tab, name) => tab.page.getByRole("list", { name: "Sessions" }).getByRole("listitem").filter({ hasText: name });

test("the empty screen says what it will show", async () => {
  const tab = await openPage();
  await tab.page.getByText("There are no sessions yet.").waitFor();
  await tab.page.getByRole("button", { name: "Start a chat" }).click();
  await tab.messageField.waitFor();
  await tab.close();
});

test("the list shows changes of every door as they happen", async () => {
  const tab = await openPage();
  const other = await tab.openTab("/#/chat/running-one");
  await other.send("/wait 60");
  await row(tab, "/wait 60").getByText("Running").waitFor();
  await row(tab, "/wait 60").getByText("supr").waitFor();
  await row(tab, "/wait 60").getByText("Local").waitFor();
  // The list may show the run before the chat does.
  await other.page.locator('article[data-status="running"]').waitFor();
  await other.page.keyboard.press("Escape");
  await row(tab, "/wait 60").getByText("Idle").waitFor();
  await row(tab, "/wait 60").getByText("run stopped").waitFor();
  await server.run("chat", "/say from a terminal");
  await row(tab, "from a terminal").waitFor();
  await row(tab, "from a terminal").getByRole("link").click();
  await tab.waitForTurn("/say from a terminal");
  await tab.send("/say and from the page");
  await tab.waitForTurn("/say and from the page");
  await tab.close();
});

test("sessions can be searched, renamed and deleted", async () => {
  await server.sendAll("apples", ["/say apples"]);
  await server.sendAll("pears", ["/say pears"]);
  const tab = await openPage();
  await row(tab, "apples").waitFor();
  await tab.page.getByRole("searchbox", { name: "Search sessions" }).fill("PEAR");
  await row(tab, "apples").waitFor({ state: "detached" });
  await row(tab, "pears").getByRole("button", { name: "Rename" }).click();
  await tab.page.getByRole("textbox", { name: "Title" }).fill("Conference");
  await tab.page.keyboard.press("Enter");
  await tab.page.getByRole("searchbox").fill("confer");
  await row(tab, "Conference").getByRole("button", { name: "Rename" }).click();
  await tab.page.getByRole("textbox", { name: "Title" }).fill("The conference");
  await tab.page.keyboard.press("Enter");
  await tab.page.getByRole("button", { name: "Rename The conference" }).and(tab.page.locator(":focus")).waitFor();
  const long = `Conference ${"and all that has to be done before it ".repeat(4)}begins`;
  await row(tab, "conference").getByRole("button", { name: "Rename" }).click();
  await tab.page.getByRole("textbox", { name: "Title" }).fill(long);
  await tab.page.keyboard.press("Enter");
  await row(tab, "Conference and all").getByRole("button", { name: "Rename" }).click();
  assert.equal(await tab.page.getByRole("textbox", { name: "Title" }).inputValue(), long);
  await tab.page.getByRole("textbox", { name: "Title" }).fill("Conference");
  await tab.page.keyboard.press("Enter");
  await row(tab, "Conference").getByRole("button", { name: "Delete" }).click();
  const dialog = tab.page.getByRole("dialog", { name: "Delete this session?" });
  await dialog.getByRole("button", { name: "Keep it" }).click();
  await row(tab, "Conference").getByRole("button", { name: "Delete" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await tab.page.getByText("No session matches the search.").waitFor();
  await tab.page.locator("#search:focus").waitFor();
  await tab.page.getByRole("searchbox").fill("");
  await row(tab, "apples").waitFor();
  assert.equal(await row(tab, "Conference").count(), 0);
  await tab.close();
});

test("the sidebar shows the start and the end of a run without polling", async () => {
  const tab = await openPage({ path: "/", hasPolling: false });
  const link = tab.page.getByRole("navigation").getByRole("link", { name: "/wait 58" });
  await tab.waitForConnection("open");
  for (let round = 0; round < 3; round++) {
    await tab.send("/wait 58");
    await link.getByText("running").waitFor();
    await tab.page.keyboard.press("Escape");
    await link.getByText("running").waitFor({ state: "detached" });
    await link.waitFor();
  }
  await tab.close();
});

test("a search does not change the recent sessions", async () => {
  await server.sendAll("plums", ["/say plums"]);
  await server.sendAll("quinces", ["/say quinces"]);
  const tab = await openPage();
  const recent = tab.page.getByRole("navigation");
  await tab.page.getByRole("searchbox").fill("plums");
  await row(tab, "quinces").waitFor({ state: "detached" });
  // Waits for one more refresh of the list.
  await tab.page.waitForResponse((response) => response.url().includes("/api/sessions?q=plums"));
  await row(tab, "plums").waitFor();
  await recent.getByRole("link", { name: "quinces" }).waitFor();
  await recent.getByRole("link", { name: "plums" }).waitFor();
  await tab.close();
});

test("rows keep their order while the pointer is in the list, and are sorted afterwards", async () => {
  for (const name of ["one", "two", "three"]) await server.sendAll(`order-${name}`, [`/say order ${name}`]);
  const tab = await openPage();
  await tab.page.getByRole("searchbox").fill("order");
  const names = async () => (await tab.page.getByRole("list", { name: "Sessions" }).getByRole("link").allInnerTexts()).map((text) => text.replace("/say ", ""));
  await waitUntil("three rows", async () => (await names()).length === 3);
  assert.deepEqual(await names(), ["order three", "order two", "order one"]);
  await row(tab, "order one").getByRole("button", { name: "Rename" }).click();
  await tab.page.getByRole("textbox", { name: "Title" }).fill("order last");
  await tab.page.keyboard.press("Enter");
  await row(tab, "order last").waitFor();
  assert.deepEqual(await names(), ["order three", "order two", "order last"]);
  await server.sendAll("order-two", ["/say again"]);
  await row(tab, "order two").getByText("4 messages").waitFor();
  assert.deepEqual(await names(), ["order three", "order two", "order last"]);
  await tab.page.getByRole("searchbox").click();
  await waitUntil("the usual order", async () => (await names())[0] === "order two");
  await tab.close();
});

test("the chat forgets a deleted session", async () => {
  await server.sendAll("obsolete", ["/say obsolete"]);
  const tab = await openPage({ path: "/#/chat/obsolete" });
  await tab.send("/say more");
  await tab.waitForTurn("/say more");
  await tab.messageField.fill("never sent");
  await tab.page.getByRole("link", { name: "Sessions", exact: true }).click();
  await row(tab, "/say obsolete").getByRole("button", { name: "Delete" }).click();
  await tab.page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await row(tab, "/say obsolete").waitFor({ state: "detached" });
  assert.equal(await tab.page.evaluate(() => localStorage.getItem("parlor.session")), null);
  await tab.page.getByRole("link", { name: "Chat", exact: true }).click();
  await tab.page.getByRole("heading", { name: "New chat", level: 1 }).waitFor();
  await tab.messageField.waitFor();
  assert.equal(await tab.messageField.inputValue(), "");
  assert.equal(await tab.page.locator("article").count(), 0);
  await tab.send("/say anew");
  await tab.waitForTurn("/say anew");
  assert.notEqual(await tab.page.evaluate(() => localStorage.getItem("parlor.session")), "obsolete");
  await tab.close();
});

test("the chat reports a session that another client deleted, and offers a new chat", async () => {
  await server.sendAll("deleted-elsewhere", ["/say for now"]);
  const tab = await openPage({ path: "/#/chat/deleted-elsewhere", allow: NETWORK });
  await tab.waitForConnection("open");
  await tab.page.getByRole("navigation").getByRole("link", { name: "for now" }).waitFor();
  assert.equal((await fetch(`${server.address}/api/sessions/deleted-elsewhere`, { method: "DELETE" })).status, 204);
  await tab.page.getByText("This session was deleted.").waitFor();
  await tab.waitForConnection("closed");
  assert.equal(await tab.messageField.isDisabled(), true);
  await tab.checkAccessibility("a deleted session");
  await tab.page.getByRole("button", { name: "Start a new chat" }).click();
  await tab.send("/say after that");
  await tab.waitForTurn("/say after that");
  await tab.close();
});

test("a refused deletion shows the reason", async () => {
  const tab = await openPage({ allow: NETWORK });
  const other = await tab.openTab("/#/chat/busy-one");
  await other.send("/wait 59");
  await row(tab, "/wait 59").getByText("Running").waitFor();
  await row(tab, "/wait 59").getByRole("button", { name: "Delete" }).click();
  await tab.page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  const dialog = tab.page.getByRole("dialog", { name: "Delete this session?" });
  await dialog.getByRole("alert").getByText("Open it and stop the run with Esc, then delete it.").waitFor();
  await tab.checkAccessibility("a refused deletion");
  await other.page.locator('article[data-status="running"]').waitFor();
  await other.page.keyboard.press("Escape");
  await other.waitForTurn("/wait 59", "stopped");
  await row(tab, "/wait 59").getByText("Idle").waitFor();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await dialog.waitFor({ state: "detached" });
  await row(tab, "/wait 59").waitFor({ state: "detached" });
  await tab.page.locator("#search:focus").waitFor();
  await tab.close();
});

test("a session of another process is joined: its text comes live, a message waits for its turn, and Esc stops the run", async (t) => {
  const child = server.spawn("chat", "/wait 54");
  t.after(() => child.kill("SIGKILL"));
  const tab = await openPage();
  await row(tab, "/wait 54").getByText("Running").waitFor();
  await row(tab, "/wait 54").getByRole("link").click();
  const turn = tab.page.locator('article[data-status="running"]');
  await turn.getByText("...").waitFor();
  await tab.send("/say joined");
  await tab.page.locator('article[data-status="queued"]').waitFor();
  await tab.page.keyboard.press("Escape");
  await tab.waitForTurn("/wait 54", "stopped");
  await (await tab.waitForTurn("/say joined")).getByText("joined", { exact: true }).waitFor();
  await tab.close();
});

test("a session of another process that may not be joined can be watched, and a message to it is refused with a reason", async (t) => {
  const apart = await Server.start({ extraSettings: "\n[sessions]\njoin = false\n" });
  t.after(() => apart.stop());
  const child = apart.spawn("chat", "!echo from another process; sleep 60");
  t.after(() => child.kill("SIGKILL"));
  const tab = await (await browser.newPage(apart, { path: "/#/sessions" })).open();
  const watched = row(tab, "from another process");
  await watched.getByText("open in another process").waitFor();
  await watched.getByText("Running").waitFor();
  await watched.getByRole("link").click();
  const turn = tab.page.locator('article[data-status="running"]');
  await turn.getByRole("button", { expanded: false }).click();
  await turn.getByText("command: echo from another process; sleep 60").waitFor();
  await tab.send("/say hello");
  await (await tab.waitForTurn("/say hello", "failed")).getByText("Another program is working in this session.").waitFor();
  child.kill("SIGINT");
  await tab.page.locator('article[data-status="stopped"], article[data-status="failed"]').first().waitFor();
  await tab.close();
});
