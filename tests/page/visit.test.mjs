// The first visit: the tour, the one-time link, how to add a model, and how much has to be loaded for it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { NETWORK } from "./browser.mjs";
import { Server, until } from "./server.mjs";
import { setUp } from "./stage.mjs";

/** What the scripts of the first screen may weigh, packed. */
const MAX_SCRIPT_BYTES = 200 * 1024;

const { server, browser, visit } = await setUp();

test("the tour asks this machine what it is", async () => {
  const at = await visit({ isToured: false });
  const tour = at.page.getByRole("region", { name: "Tour" });
  await tour.getByRole("button", { name: "Run it" }).click();
  await tour.getByRole("button", { name: "Show the work" }).click();
  await at.page.locator("article").getByText("command: uname -a").waitFor();
  await at.page.locator("article .answer").getByText("Linux").waitFor();
  await tour.getByRole("button", { name: "Go on" }).click();
  await tour.getByRole("button", { name: "Add a model" }).click();
  const dialog = at.page.getByRole("dialog", { name: "Add a model" });
  await dialog.getByText("ANTHROPIC_API_KEY").first().waitFor();
  await dialog.getByRole("button", { name: "Close" }).click();
  await tour.getByRole("button", { name: "Done" }).click();
  await at.page.reload();
  await at.ended("!uname -a");
  assert.equal(await tour.count(), 0);
  await at.page.getByRole("link", { name: "House", exact: true }).click();
  await at.page.getByRole("button", { name: "Keyboard shortcuts" }).click();
  await at.page.getByRole("button", { name: "Show the tour again" }).click();
  await tour.getByRole("button", { name: "Run it" }).waitFor();
  await at.end();
});

test("the tour says what became of its run when it has to wait, and when it was not taken", async (t) => {
  const at = await visit();
  await at.say("/wait 60");
  await at.page.locator('article[data-status="running"]').waitFor();
  await at.page.getByRole("button", { name: "Keyboard shortcuts" }).click();
  await at.page.getByRole("button", { name: "Show the tour again" }).click();
  const tour = at.page.getByRole("region", { name: "Tour" });
  await tour.getByRole("button", { name: "Run it" }).click();
  await tour.getByText("Another run is before it.").waitFor();
  await at.page.keyboard.press("Escape");
  await tour.getByText("There is the answer.").waitFor();
  await tour.getByRole("button", { name: "Show the work" }).click();
  await at.page.locator("article").getByText("command: uname -a").waitFor();
  await at.end();

  const child = server.begin("chat", "!echo busy here; sleep 60");
  t.after(() => child.kill("SIGKILL"));
  const other = await visit({ isToured: false, path: "/#/house" });
  await other.page.getByRole("list", { name: "Sessions" }).getByRole("listitem").filter({ hasText: "busy here" }).filter({ hasText: "Running" }).getByRole("link").click();
  const offered = other.page.getByRole("region", { name: "Tour" });
  await offered.getByRole("button", { name: "Run it" }).click();
  await offered.getByText("It was not taken, and says why.").waitFor();
  assert.equal(await offered.getByRole("button", { name: "Show the work" }).count(), 0);
  await other.isAccessible("a tour whose run was not taken");
  const failed = other.page.locator('article[data-status="failed"]');
  assert.equal(await failed.count(), 1);
  await offered.getByRole("button", { name: "Run it again" }).click();
  await failed.nth(1).waitFor();
  await other.end();
});

test("a one-time link lets in once", async (t) => {
  const elsewhere = { extraHTTPHeaders: { "X-Forwarded-For": "203.0.113.9" } };
  const printed = await Server.start({ isOnTerminal: true });
  t.after(() => printed.stop());
  const code = await until("the link", () => printed.said.match(/#code=([\w-]+)/)?.[1]);
  const at = await (await browser.visit(printed, { path: `/#code=${code}`, ...elsewhere })).begin();
  await at.say("/say let in");
  await at.ended("/say let in");
  assert.match(new URL(at.page.url()).hash, /^#\/chat\/[\da-f-]+$/);
  await at.end();
  const late = await (await browser.visit(printed, { path: `/#code=${code}`, allow: NETWORK, ...elsewhere })).begin();
  await late.page.getByRole("alert").getByText("used already").waitFor();
  await late.end();
});

test("the first screen is small, and loads nothing that it does not need", async () => {
  const visit = await browser.visit(server);
  const scripts = [];
  visit.page.on("response", (response) => {
    if (response.request().resourceType() === "script") scripts.push(response);
  });
  const at = await visit.begin();
  await at.connection("open");
  const sizes = await Promise.all(scripts.map(async (script) => gzipSync(await script.body(), { level: 9 }).length));
  const whole = sizes.reduce((sum, size) => sum + size, 0);
  console.log(`first screen: ${Math.round(whole / 1024)} KB of script in ${sizes.length} files`);
  assert.ok(whole > 0 && whole <= MAX_SCRIPT_BYTES, `${whole} bytes`);
  assert.equal(scripts.some((script) => /Terminal|Usage|highlight/.test(script.url())), false);
  const policy = (await at.page.request.get(server.address)).headers()["content-security-policy"];
  assert.match(policy, /script-src 'self'/);
  assert.doesNotMatch(policy, /unsafe/);
  await at.end();
});
