// Who answers, with which model, and how much it thinks: what is chosen is what the provider is asked.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { setUp } from "./stage.mjs";

/** What the provider was asked, in order. */
const asked = [];
const provider = createServer(async (request, response) => {
  let body = "";
  for await (const piece of request) body += piece;
  const { model, reasoning_effort: reasoning } = JSON.parse(body);
  asked.push({ model, reasoning });
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  const piece = (delta, reason) => `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", created: 1, model, choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`;
  response.end(`${piece({ role: "assistant", content: `I am ${model}.` }, null)}${piece({}, "stop")}data: [DONE]\n\n`);
});
await new Promise((resolve) => provider.listen(0, "127.0.0.1", resolve));
after(() => provider.close());

const model = (name) => `
[models.${name}]
provider = "openai"
model = "${name}-1"
base_url = "http://127.0.0.1:${provider.address().port}/v1"
api_key_env = "PROVIDER_KEY"
`;
const main = `
[agents.main]
name = "Main"
kind = "model"
model = "fast"
`;
const { server, browser, visit } = await setUp({ more: `${model("fast")}${model("slow")}${main}`, variables: { PROVIDER_KEY: "a-key-for-tests" } });

const words = (select) => select.locator("option").allInnerTexts();

test("what is chosen is what the provider is asked, and stays chosen", async () => {
  const at = await visit();
  const models = at.page.getByLabel("Model");
  const reasoning = at.page.getByLabel("Reasoning");
  await models.waitFor();
  assert.deepEqual(await words(models), ["Model: usual", "fast", "slow"]);
  await at.say("one");
  await (await at.ended("one")).locator(".answer").getByText("I am fast-1.").waitFor();
  await models.selectOption("slow");
  await reasoning.selectOption("high");
  await at.say("two");
  await (await at.ended("two")).locator(".answer").getByText("I am slow-1.").waitFor();
  assert.deepEqual(asked.splice(0), [{ model: "fast-1", reasoning: undefined }, { model: "slow-1", reasoning: "high" }]);
  await at.page.reload();
  await at.ended("two");
  assert.equal(await models.inputValue(), "slow");
  assert.equal(await reasoning.inputValue(), "high");
  await at.isAccessible("the pickers");
  await at.end();
});

test("an agent without a model has none to choose, and is asked without one", async () => {
  const at = await visit();
  await at.page.getByLabel("Model").selectOption("slow");
  await at.page.getByLabel("Agent").selectOption("local");
  await at.page.getByLabel("Model").waitFor({ state: "detached" });
  const sent = at.page.waitForEvent("websocket");
  await at.page.reload();
  const socket = await sent;
  const frame = socket.waitForEvent("framesent", ({ payload }) => payload.includes("message.send"));
  await at.say("/say plain");
  const { payload } = JSON.parse((await frame).payload);
  assert.deepEqual([payload.agent_id, "model" in payload, "reasoning" in payload], ["local", false, false]);
  await at.ended("/say plain");
  await at.end();
});

test("a model that is gone is not asked for, and one that was added is offered", async () => {
  const at = await browser.visit(server);
  await at.page.addInitScript(() => localStorage.setItem("parlor.choice", JSON.stringify({ agent: "gone", model: "gone", reasoning: "" })));
  let added = [];
  await at.page.route("**/api/choices", async (route) => {
    const response = await route.fetch();
    const choices = await response.json();
    await route.fulfill({ response, json: { ...choices, models: [...choices.models, ...added] } });
  });
  await at.begin();
  const models = at.page.getByLabel("Model");
  assert.equal(await models.inputValue(), "");
  await at.say("hello");
  await (await at.ended("hello")).locator(".answer").getByText("I am fast-1.").waitFor();
  added = [{ name: "newest", provider: "openai", model: "newest-1" }];
  await models.focus();
  await models.locator("option", { hasText: "newest" }).waitFor({ state: "attached" });
  added = [];
  await at.page.evaluate(() => dispatchEvent(new Event("focus")));
  await models.locator("option", { hasText: "newest" }).waitFor({ state: "detached" });
  await at.end();
});

test("how to add a model names the file of this server", async () => {
  const at = await browser.visit(server);
  let place = { settings_file: "~/garden/parlor.toml" };
  await at.page.route("**/api/choices", async (route) => {
    const response = await route.fetch();
    const { settings_file: _, ...choices } = await response.json();
    await route.fulfill({ response, json: { ...choices, ...place, models: [] } });
  });
  await at.begin();
  const dialog = at.page.getByRole("dialog", { name: "Add a model" });
  await at.page.getByRole("button", { name: "Add a model" }).click();
  await dialog.locator("code", { hasText: "~/garden/parlor.toml" }).waitFor();
  await dialog.getByRole("button", { name: "Close" }).click();
  place = {};
  await at.page.getByRole("button", { name: "Add a model" }).click();
  await dialog.locator("code", { hasText: /^~\/\.parlor$/ }).waitFor();
  await at.end();
});
