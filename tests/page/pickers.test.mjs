// The pickers for agent, model and reasoning level: the request to the provider has what the user selected.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { setUp } from "./setup.mjs";

/** The requests that the provider received, in order. */
const requests = [];
const provider = createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  const { model, reasoning_effort: reasoning } = JSON.parse(body);
  requests.push({ model, reasoning });
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  const chunk = (delta, reason) => `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", created: 1, model, choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`;
  response.end(`${chunk({ role: "assistant", content: `I am ${model}.` }, null)}${chunk({}, "stop")}data: [DONE]\n\n`);
});
await new Promise((resolve) => provider.listen(0, "127.0.0.1", resolve));
after(() => provider.close());

const modelSettings = (name) => `
[models.${name}]
provider = "openai"
model = "${name}-1"
base_url = "http://127.0.0.1:${provider.address().port}/v1"
api_key_env = "PROVIDER_KEY"
`;
const agentSettings = `
[agents.main]
name = "Main"
kind = "model"
model = "fast"
`;
const { server, browser, openPage } = await setUp({ extraSettings: `${modelSettings("fast")}${modelSettings("slow")}${agentSettings}`, extraEnvironment: { PROVIDER_KEY: "a-key-for-tests" } });

const optionTexts = (select) => select.locator("option").allInnerTexts();

test("the provider receives the selected model and reasoning level, and a reload keeps the selection", async () => {
  const tab = await openPage();
  const models = tab.page.getByLabel("Model");
  const reasoning = tab.page.getByLabel("Reasoning");
  await models.waitFor();
  assert.deepEqual(await optionTexts(models), ["Model: default", "fast", "slow"]);
  await tab.send("one");
  await (await tab.waitForTurn("one")).locator(".answer").getByText("I am fast-1.").waitFor();
  await models.selectOption("slow");
  await reasoning.selectOption("high");
  await tab.send("two");
  await (await tab.waitForTurn("two")).locator(".answer").getByText("I am slow-1.").waitFor();
  assert.deepEqual(requests.splice(0), [{ model: "fast-1", reasoning: undefined }, { model: "slow-1", reasoning: "high" }]);
  await tab.page.reload();
  await tab.waitForTurn("two");
  assert.equal(await models.inputValue(), "slow");
  assert.equal(await reasoning.inputValue(), "high");
  await tab.checkAccessibility("the pickers");
  await tab.close();
});

test("an agent without a model hides the model picker, and its messages name no model", async () => {
  const tab = await openPage();
  await tab.page.getByLabel("Model").selectOption("slow");
  await tab.page.getByLabel("Agent").selectOption("local");
  await tab.page.getByLabel("Model").waitFor({ state: "detached" });
  const sent = tab.page.waitForEvent("websocket");
  await tab.page.reload();
  const socket = await sent;
  const frame = socket.waitForEvent("framesent", ({ payload }) => payload.includes("message.send"));
  await tab.send("/say plain");
  const { payload } = JSON.parse((await frame).payload);
  assert.deepEqual([payload.agent_id, "model" in payload, "reasoning" in payload], ["local", false, false]);
  await tab.waitForTurn("/say plain");
  await tab.close();
});

test("the page does not send a removed model, and offers an added one", async () => {
  const tab = await browser.newPage(server);
  await tab.page.addInitScript(() => localStorage.setItem("parlor.choice", JSON.stringify({ agent: "gone", model: "gone", reasoning: "" })));
  let added = [];
  await tab.page.route("**/api/choices", async (route) => {
    const response = await route.fetch();
    const choices = await response.json();
    await route.fulfill({ response, json: { ...choices, models: [...choices.models, ...added] } });
  });
  await tab.open();
  const models = tab.page.getByLabel("Model");
  assert.equal(await models.inputValue(), "");
  await tab.send("hello");
  await (await tab.waitForTurn("hello")).locator(".answer").getByText("I am fast-1.").waitFor();
  added = [{ name: "newest", provider: "openai", model: "newest-1" }];
  await models.focus();
  await models.locator("option", { hasText: "newest" }).waitFor({ state: "attached" });
  added = [];
  await tab.page.evaluate(() => dispatchEvent(new Event("focus")));
  await models.locator("option", { hasText: "newest" }).waitFor({ state: "detached" });
  await tab.close();
});

test("the instructions for adding a model name the settings file of this server", async () => {
  const tab = await browser.newPage(server);
  let settingsFile = { settings_file: "~/garden/parlor.toml" };
  await tab.page.route("**/api/choices", async (route) => {
    const response = await route.fetch();
    const { settings_file: _, ...choices } = await response.json();
    await route.fulfill({ response, json: { ...choices, ...settingsFile, models: [] } });
  });
  await tab.open();
  const dialog = tab.page.getByRole("dialog", { name: "Add a model" });
  await tab.page.getByRole("button", { name: "Add a model" }).click();
  await dialog.locator("code", { hasText: "~/garden/parlor.toml" }).waitFor();
  await dialog.getByRole("button", { name: "Close" }).click();
  settingsFile = {};
  await tab.page.getByRole("button", { name: "Add a model" }).click();
  await dialog.locator("code", { hasText: /^~\/\.parlor$/ }).waitFor();
  await tab.close();
});
