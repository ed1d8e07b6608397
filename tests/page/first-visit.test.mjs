// The first visit: the tour, the one-time link, the instructions for adding a model, and the size of the scripts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { NETWORK } from "./browser.mjs";
import { Server, waitUntil } from "./server.mjs";
import { setUp } from "./setup.mjs";

/** The size limit of the scripts of the first screen, compressed. */
const MAX_SCRIPT_BYTES = 200 * 1024;

const { server, browser, openPage } = await setUp();

test("the tour runs a command and shows its steps", async () => {
  const tab = await openPage({ isTourDone: false });
  const tour = tab.page.getByRole("region", { name: "Tour" });
  await tour.getByRole("button", { name: "Run it" }).click();
  await tour.getByRole("button", { name: "Show the steps" }).click();
  await tab.page.locator("article").getByText("command: uname -a").waitFor();
  await tab.page.locator("article .answer").getByText("Linux").waitFor();
  await tour.getByRole("button", { name: "Continue" }).click();
  await tour.getByRole("button", { name: "Add a model" }).click();
  const dialog = tab.page.getByRole("dialog", { name: "Add a model" });
  await dialog.getByText("ANTHROPIC_API_KEY").first().waitFor();
  await dialog.getByRole("button", { name: "Close" }).click();
  await tour.getByRole("button", { name: "Done" }).click();
  await tab.page.reload();
  await tab.waitForTurn("!uname -a");
  assert.equal(await tour.count(), 0);
  await tab.page.getByRole("link", { name: "Sessions", exact: true }).click();
  await tab.page.getByRole("button", { name: "Keyboard shortcuts" }).click();
  await tab.page.getByRole("button", { name: "Show the tour again" }).click();
  await tour.getByRole("button", { name: "Run it" }).waitFor();
  await tab.close();
});

test("the tour explains a queued run, and a message that the server did not accept", async (t) => {
  const tab = await openPage();
  await tab.send("/wait 60");
  await tab.page.locator('article[data-status="running"]').waitFor();
  await tab.page.getByRole("button", { name: "Keyboard shortcuts" }).click();
  await tab.page.getByRole("button", { name: "Show the tour again" }).click();
  const tour = tab.page.getByRole("region", { name: "Tour" });
  await tour.getByRole("button", { name: "Run it" }).click();
  await tour.getByText("Another run is active.").waitFor();
  await tab.page.keyboard.press("Escape");
  await tour.getByText("The answer is here.").waitFor();
  await tour.getByRole("button", { name: "Show the steps" }).click();
  await tab.page.locator("article").getByText("command: uname -a").waitFor();
  await tab.close();

  const apart = await Server.start({ extraSettings: "\n[sessions]\njoin = false\n" });
  t.after(() => apart.stop());
  const child = apart.spawn("chat", "!echo busy here; sleep 60");
  t.after(() => child.kill("SIGKILL"));
  const other = await (await browser.newPage(apart, { isTourDone: false, path: "/#/sessions" })).open();
  await other.page.getByRole("list", { name: "Sessions" }).getByRole("listitem").filter({ hasText: "busy here" }).filter({ hasText: "Running" }).getByRole("link").click();
  const otherTour = other.page.getByRole("region", { name: "Tour" });
  await otherTour.getByRole("button", { name: "Run it" }).click();
  await otherTour.getByText("The server did not accept the message").waitFor();
  assert.equal(await otherTour.getByRole("button", { name: "Show the steps" }).count(), 0);
  await other.checkAccessibility("a tour whose message was refused");
  const failed = other.page.locator('article[data-status="failed"]');
  assert.equal(await failed.count(), 1);
  await otherTour.getByRole("button", { name: "Run it again" }).click();
  await failed.nth(1).waitFor();
  await other.close();
});

test("a one-time link works once", async (t) => {
  const remote = { extraHTTPHeaders: { "X-Forwarded-For": "203.0.113.9" } };
  const printed = await Server.start({ isOnTerminal: true });
  t.after(() => printed.stop());
  const code = await waitUntil("the one-time link", () => printed.output.match(/#code=([\w-]+)/)?.[1]);
  const tab = await (await browser.newPage(printed, { path: `/#code=${code}`, ...remote })).open();
  await tab.send("/say let in");
  await tab.waitForTurn("/say let in");
  assert.match(new URL(tab.page.url()).hash, /^#\/chat\/[\da-f-]+$/);
  await tab.close();
  const second = await (await browser.newPage(printed, { path: `/#code=${code}`, allow: NETWORK, ...remote })).open();
  await second.page.getByRole("alert").getByText("used or expired").waitFor();
  await second.close();
});

test("the first screen loads few scripts, and none of other screens", async () => {
  const newTab = await browser.newPage(server);
  const scripts = [];
  newTab.page.on("response", (response) => {
    if (response.request().resourceType() === "script") scripts.push(response);
  });
  const tab = await newTab.open();
  await tab.waitForConnection("open");
  const sizes = await Promise.all(scripts.map(async (script) => gzipSync(await script.body(), { level: 9 }).length));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  console.log(`first screen: ${Math.round(total / 1024)} KB of script in ${sizes.length} files`);
  assert.ok(total > 0 && total <= MAX_SCRIPT_BYTES, `${total} bytes`);
  assert.equal(scripts.some((script) => /Terminal|Usage|highlight/.test(script.url())), false);
  const policy = (await tab.page.request.get(server.address)).headers()["content-security-policy"];
  assert.match(policy, /script-src 'self'/);
  assert.doesNotMatch(policy, /unsafe/);
  await tab.close();
});
