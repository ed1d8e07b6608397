// Usage over time.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setUp } from "./stage.mjs";

const { server, visit } = await setUp({ path: "/#/usage" });

test("a house in which nothing was used says so", async () => {
  const at = await visit();
  await at.page.getByText("Nothing was used in this time.").waitFor();
  await at.end();
});

test("where no tokens are used, the plot says why", async () => {
  await server.fill("local", ["/say nothing is used"]);
  const at = await visit();
  await at.page.getByText("No tokens were used: only models use them.").waitFor();
  assert.equal(await at.page.getByRole("img", { name: /per day/ }).count(), 0);
  await at.isAccessible("a plot of nothing");
  await at.page.getByRole("button", { name: "cost" }).click();
  await at.page.getByText("No cost is known").waitFor();
  await at.page.getByRole("button", { name: "Show runs" }).click();
  await at.page.getByRole("img", { name: /runs per day/ }).waitFor();
  await at.end();
});

test("runs, tokens and cost of today are in the plot and in the numbers", async () => {
  await server.fill("used", ["deploy web", "deploy api", "break"], "demo");
  const at = await visit();
  const number = (name) => at.page.locator("dl > div", { has: at.page.getByText(name, { exact: true }) }).locator("dd").innerText();
  await at.page.getByRole("img", { name: /tokens per day over 30 days/ }).waitFor();
  assert.deepEqual(await Promise.all(["Runs", "Failed", "Tokens in", "Tokens out", "Cost"].map(number)), ["4", "1", "2,400", "680", "$0.011"]);
  await at.page.getByRole("button", { name: "runs" }).click();
  await at.page.getByRole("button", { name: "7 days" }).click();
  const plot = at.page.getByRole("img", { name: "runs per day over 7 days, at most 4" });
  await plot.waitFor();
  assert.equal(await plot.locator("g").count(), 7);
  await plot.locator("g").last().hover();
  await at.page.locator("figcaption").getByText(/: 4 runs/).waitFor();
  await at.page.getByText("Day by day").click();
  const lines = at.page.getByRole("group", { name: "Day by day" }).getByRole("row");
  await lines.last().waitFor();
  assert.equal(await lines.count(), 8);
  await at.end();
});
