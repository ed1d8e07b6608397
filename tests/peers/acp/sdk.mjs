// The TypeScript SDK as a client: a tool that is allowed and one that is refused, a cancelled turn, and the session in a
// second process. The SDK validates every frame against the stable schema. The policy must ask about `shell`.
// Usage: sdk.mjs PARLOR FOLDER
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [parlor, folder] = process.argv.slice(2);
const { agent: agentMethods, client: clientMethods } = acp.methods;

/** The kind of option that the next permission requests are answered with, and the titles of those that came. */
let permission = "allow_once";
const asked = [];

/** Starts parlor, runs `talk` with the updates that arrive, and waits until parlor has ended. */
async function withAgent(talk) {
  const child = spawn(parlor, ["stdio", "acp"], { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit");
  const updates = [];
  const waiting = [];
  const client = acp
    .client({ name: "sdk" })
    .onNotification(clientMethods.session.update, ({ params }) => {
      updates.push(params.update);
      waiting.splice(0).forEach((wake) => wake());
    })
    .onRequest(clientMethods.session.requestPermission, ({ params }) => {
      asked.push(params.toolCall.title);
      const { optionId } = params.options.find((option) => option.kind === permission);
      return { outcome: { outcome: "selected", optionId } };
    });
  const until = async (found) => {
    while (!updates.some(found)) await new Promise((wake) => waiting.push(wake));
  };
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  await client.connectWith(stream, async (agent) => {
    const answer = await agent.request(agentMethods.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
    });
    assert.equal(answer.protocolVersion, 1);
    await talk(agent, updates, until);
  });
  child.stdin.end();
  assert.deepEqual(await exited, [0, null]);
}

const prompt = (agent, sessionId, text) =>
  agent.request(agentMethods.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
const texts = (updates, kind) =>
  updates
    .filter((update) => update.sessionUpdate === kind)
    .map((update) => update.content.text)
    .join("");

let sessionId;
await withAgent(async (agent, updates, until) => {
  ({ sessionId } = await agent.request(agentMethods.session.new, { cwd: folder, mcpServers: [] }));
  assert.equal((await prompt(agent, sessionId, "!echo from the tool")).stopReason, "end_turn");
  const done = updates.find((update) => update.sessionUpdate === "tool_call_update" && update.status === "completed");
  assert.match(JSON.stringify(done.content), /from the tool/);
  assert.equal(asked.length, 1);

  permission = "reject_once";
  const allowed = updates.length;
  assert.equal((await prompt(agent, sessionId, "!echo refused")).stopReason, "end_turn");
  const statuses = updates.slice(allowed).map((update) => update.status);
  assert(statuses.includes("failed") && !statuses.includes("completed"), `${statuses}`);
  assert.match(asked[1], /echo refused/);

  const before = updates.length;
  const turn = prompt(agent, sessionId, "/wait 600");
  await until((update) => updates.indexOf(update) >= before && update.sessionUpdate === "agent_message_chunk");
  await agent.notify(agentMethods.session.cancel, { sessionId });
  assert.equal((await turn).stopReason, "cancelled");
});

await withAgent(async (agent, updates) => {
  await agent.request(agentMethods.session.load, { sessionId, cwd: folder, mcpServers: [] });
  assert.match(texts(updates, "user_message_chunk"), /!echo from the tool.*!echo refused.*\/wait 600/);
  assert.match(texts(updates, "agent_message_chunk"), /from the tool/);
  assert.equal((await prompt(agent, sessionId, "/say and again")).stopReason, "end_turn");
  assert.match(texts(updates, "agent_message_chunk"), /and again$/);
});
console.log("acp: the TypeScript SDK held its conversation");
