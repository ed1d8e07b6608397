// The house: sessions of all doors, live, with search, names, deletion and resuming.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { until } from "./server.mjs";
import { setUp } from "./stage.mjs";

const { server, visit } = await setUp({ path: "/#/house" });
const row = (at, name) => at.page.getByRole("list", { name: "Sessions" }).getByRole("listitem").filter({ hasText: name });

test("an empty house says what will be there", async () => {
  const at = await visit();
  await at.page.getByText("Nobody has said anything yet.").waitFor();
  await at.page.getByRole("button", { name: "Begin one" }).click();
  await at.field.waitFor();
  await at.end();
});

test("what happens at any door is seen as it happens", async () => {
  const at = await visit();
  const other = await at.another("/#/chat/running-one");
  await other.say("/wait 60");
  await row(at, "/wait 60").getByText("Running").waitFor();
  await row(at, "/wait 60").getByText("supr").waitFor();
  await row(at, "/wait 60").getByText("Local").waitFor();
  // The list may know it before the page that can stop it.
  await other.page.locator('article[data-status="running"]').waitFor();
  await other.page.keyboard.press("Escape");
  await row(at, "/wait 60").getByText("Idle").waitFor();
  await row(at, "/wait 60").getByText("run stopped").waitFor();
  await server.run("chat", "/say from a terminal");
  await row(at, "from a terminal").waitFor();
  await row(at, "from a terminal").getByRole("link").click();
  await at.ended("/say from a terminal");
  await at.say("/say and from the page");
  await at.ended("/say and from the page");
  await at.end();
});

test("sessions can be found, named and deleted", async () => {
  await server.fill("apples", ["/say apples"]);
  await server.fill("pears", ["/say pears"]);
  const at = await visit();
  await row(at, "apples").waitFor();
  await at.page.getByRole("searchbox", { name: "Search sessions" }).fill("PEAR");
  await row(at, "apples").waitFor({ state: "detached" });
  await row(at, "pears").getByRole("button", { name: "Rename" }).click();
  await at.page.getByRole("textbox", { name: "Title" }).fill("Conference");
  await at.page.keyboard.press("Enter");
  await at.page.getByRole("searchbox").fill("confer");
  await row(at, "Conference").getByRole("button", { name: "Rename" }).click();
  await at.page.getByRole("textbox", { name: "Title" }).fill("The conference");
  await at.page.keyboard.press("Enter");
  await at.page.getByRole("button", { name: "Rename The conference" }).and(at.page.locator(":focus")).waitFor();
  const long = `Conference ${"and all that has to be done before it ".repeat(4)}begins`;
  await row(at, "conference").getByRole("button", { name: "Rename" }).click();
  await at.page.getByRole("textbox", { name: "Title" }).fill(long);
  await at.page.keyboard.press("Enter");
  await row(at, "Conference and all").getByRole("button", { name: "Rename" }).click();
  assert.equal(await at.page.getByRole("textbox", { name: "Title" }).inputValue(), long);
  await at.page.getByRole("textbox", { name: "Title" }).fill("Conference");
  await at.page.keyboard.press("Enter");
  await row(at, "Conference").getByRole("button", { name: "Delete" }).click();
  const dialog = at.page.getByRole("dialog", { name: "Delete this session?" });
  await dialog.getByRole("button", { name: "Keep it" }).click();
  await row(at, "Conference").getByRole("button", { name: "Delete" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await at.page.getByText("Nothing is called that.").waitFor();
  await at.page.locator("#search:focus").waitFor();
  await at.page.getByRole("searchbox").fill("");
  await row(at, "apples").waitFor();
  assert.equal(await row(at, "Conference").count(), 0);
  await at.end();
});

test("the list beside a conversation says what the conversation says, and waits for no clock", async () => {
  const at = await visit({ path: "/", hasClock: false });
  const line = at.page.getByRole("navigation").getByRole("link", { name: "/wait 58" });
  await at.connection("open");
  for (let round = 0; round < 3; round++) {
    await at.say("/wait 58");
    await line.getByText("running").waitFor();
    await at.page.keyboard.press("Escape");
    await line.getByText("running").waitFor({ state: "detached" });
    await line.waitFor();
  }
  await at.end();
});

test("what is looked for is not what was used last", async () => {
  await server.fill("plums", ["/say plums"]);
  await server.fill("quinces", ["/say quinces"]);
  const at = await visit();
  const recent = at.page.getByRole("navigation");
  await at.page.getByRole("searchbox").fill("plums");
  await row(at, "quinces").waitFor({ state: "detached" });
  // Once more after that the list was asked for.
  await at.page.waitForResponse((response) => response.url().includes("/api/sessions?q=plums"));
  await row(at, "plums").waitFor();
  await recent.getByRole("link", { name: "quinces" }).waitFor();
  await recent.getByRole("link", { name: "plums" }).waitFor();
  await at.end();
});

test("a line stays where it is while one points at the list, and finds its place when one has left", async () => {
  for (const name of ["one", "two", "three"]) await server.fill(`order-${name}`, [`/say order ${name}`]);
  const at = await visit();
  await at.page.getByRole("searchbox").fill("order");
  const names = async () => (await at.page.getByRole("list", { name: "Sessions" }).getByRole("link").allInnerTexts()).map((text) => text.replace("/say ", ""));
  await until("the lines", async () => (await names()).length === 3);
  assert.deepEqual(await names(), ["order three", "order two", "order one"]);
  await row(at, "order one").getByRole("button", { name: "Rename" }).click();
  await at.page.getByRole("textbox", { name: "Title" }).fill("order last");
  await at.page.keyboard.press("Enter");
  await row(at, "order last").waitFor();
  assert.deepEqual(await names(), ["order three", "order two", "order last"]);
  await server.fill("order-two", ["/say again"]);
  await row(at, "order two").getByText("4 messages").waitFor();
  assert.deepEqual(await names(), ["order three", "order two", "order last"]);
  await at.page.getByRole("searchbox").click();
  await until("the usual order", async () => (await names())[0] === "order two");
  await at.end();
});

test("a deleted conversation does not go on in the chat", async () => {
  await server.fill("doomed", ["/say doomed"]);
  const at = await visit({ path: "/#/chat/doomed" });
  await at.say("/say more");
  await at.ended("/say more");
  await at.field.fill("never sent");
  await at.page.getByRole("link", { name: "House", exact: true }).click();
  await row(at, "/say doomed").getByRole("button", { name: "Delete" }).click();
  await at.page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await row(at, "/say doomed").waitFor({ state: "detached" });
  assert.equal(await at.page.evaluate(() => localStorage.getItem("parlor.session")), null);
  await at.page.getByRole("link", { name: "Chat", exact: true }).click();
  await at.page.getByRole("heading", { name: "New chat", level: 1 }).waitFor();
  await at.field.waitFor();
  assert.equal(await at.field.inputValue(), "");
  assert.equal(await at.page.locator("article").count(), 0);
  await at.say("/say anew");
  await at.ended("/say anew");
  assert.notEqual(await at.page.evaluate(() => localStorage.getItem("parlor.session")), "doomed");
  await at.end();
});

test("a conversation that was deleted elsewhere says so, and a new one is offered", async () => {
  await server.fill("deleted-elsewhere", ["/say for now"]);
  const at = await visit({ path: "/#/chat/deleted-elsewhere", allow: NETWORK });
  await at.connection("open");
  await at.page.getByRole("navigation").getByRole("link", { name: "for now" }).waitFor();
  assert.equal((await fetch(`${server.address}/api/sessions/deleted-elsewhere`, { method: "DELETE" })).status, 204);
  await at.page.getByText("This conversation was deleted.").waitFor();
  await at.connection("closed");
  assert.equal(await at.field.isDisabled(), true);
  await at.isAccessible("a conversation that was deleted");
  await at.page.getByRole("button", { name: "Begin a new one" }).click();
  await at.say("/say after that");
  await at.ended("/say after that");
  await at.end();
});

test("what cannot be deleted says why", async () => {
  const at = await visit({ allow: NETWORK });
  const other = await at.another("/#/chat/busy-one");
  await other.say("/wait 59");
  await row(at, "/wait 59").getByText("Running").waitFor();
  await row(at, "/wait 59").getByRole("button", { name: "Delete" }).click();
  await at.page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  const dialog = at.page.getByRole("dialog", { name: "Delete this session?" });
  await dialog.getByRole("alert").getByText("Open it and stop it with Esc, then delete it.").waitFor();
  await at.isAccessible("a deletion that is refused");
  await other.page.locator('article[data-status="running"]').waitFor();
  await other.page.keyboard.press("Escape");
  await other.ended("/wait 59", "stopped");
  await row(at, "/wait 59").getByText("Idle").waitFor();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await dialog.waitFor({ state: "detached" });
  await row(at, "/wait 59").waitFor({ state: "detached" });
  await at.page.locator("#search:focus").waitFor();
  await at.end();
});

test("what another process runs can be watched, and says why it cannot be written to", async (t) => {
  const child = server.begin("chat", "!echo seen from afar; sleep 60");
  t.after(() => child.kill("SIGKILL"));
  const at = await visit();
  const watched = row(at, "seen from afar");
  await watched.getByText("another process has it").waitFor();
  await watched.getByText("Running").waitFor();
  await watched.getByRole("link").click();
  const turn = at.page.locator('article[data-status="running"]');
  await turn.getByRole("button", { expanded: false }).click();
  await turn.getByText("command: echo seen from afar; sleep 60").waitFor();
  await at.say("/say hello");
  await (await at.ended("/say hello", "failed")).getByText("Another program is working in this session.").waitFor();
  child.kill("SIGINT");
  await at.page.locator('article[data-status="stopped"], article[data-status="failed"]').first().waitFor();
  await at.end();
});
