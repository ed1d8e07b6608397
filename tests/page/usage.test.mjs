// The usage screen.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setUp } from "./setup.mjs";

const { server, openPage } = await setUp({ path: "/#/usage" });

test("without runs the screen says so", async () => {
  const tab = await openPage();
  await tab.page.getByText("There were no runs in this time.").waitFor();
  await tab.close();
});

test("without tokens the screen says why", async () => {
  await server.sendAll("local", ["/say nothing is used"]);
  const tab = await openPage();
  await tab.page.getByText("No tokens were used: only models use tokens.").waitFor();
  assert.equal(await tab.page.getByRole("img", { name: /per day/ }).count(), 0);
  await tab.checkAccessibility("usage without tokens");
  await tab.page.getByRole("button", { name: "cost" }).click();
  await tab.page.getByText("The cost is unknown").waitFor();
  await tab.page.getByRole("button", { name: "Show runs" }).click();
  await tab.page.getByRole("img", { name: /runs per day/ }).waitFor();
  await tab.close();
});

test("the plot and the numbers show the runs, tokens and cost of today", async () => {
  await server.sendAll("used", ["deploy web", "deploy api", "break"], "demo");
  const tab = await openPage();
  const number = (name) => tab.page.locator("dl > div", { has: tab.page.getByText(name, { exact: true }) }).locator("dd").innerText();
  await tab.page.getByRole("img", { name: /tokens per day over 30 days/ }).waitFor();
  assert.deepEqual(await Promise.all(["Runs", "Failed", "Tokens in", "Tokens out", "Cost"].map(number)), ["4", "1", "2,400", "680", "$0.011"]);
  await tab.page.getByRole("button", { name: "runs" }).click();
  await tab.page.getByRole("button", { name: "7 days" }).click();
  const plot = tab.page.getByRole("img", { name: "runs per day over 7 days, at most 4" });
  await plot.waitFor();
  assert.equal(await plot.locator("g").count(), 7);
  await plot.locator("g").last().hover();
  await tab.page.locator("figcaption").getByText(/: 4 runs/).waitFor();
  await tab.page.getByText("Day by day").click();
  const rows = tab.page.getByRole("group", { name: "Day by day" }).getByRole("row");
  await rows.last().waitFor();
  assert.equal(await rows.count(), 8);
  await tab.close();
});
