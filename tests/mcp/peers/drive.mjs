// Lists and calls tools, and delegates tasks, with the TypeScript client, on stdio and over HTTP.
//
// Usage: drive.mjs PARLOR ADDRESS TOKEN
import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [parlor, address, token] = process.argv.slice(2);

async function connected(transport) {
  const client = new Client({ name: "drive", version: "1" });
  await client.connect(transport);
  return client;
}

const call = (client, name, args, options) => client.callTool({ name, arguments: args }, options);

async function drive(name, open) {
  let client = await connected(open());
  const { tools } = await client.listTools();
  assert(tools.some((tool) => tool.name === "session_start"), JSON.stringify(tools));
  assert(!(await call(client, "list_dir", { path: "." })).isError);
  const hello = (await call(client, "session_start", { message: "/say hello" })).structuredContent;
  const said = (await call(client, "session_wait", { session_id: hello.session_id })).structuredContent;
  assert.equal(said.status, "completed");
  assert.equal(said.text, "hello");

  // A task is watched and cancelled.
  const long = (await call(client, "session_start", { message: "/wait 60" })).structuredContent;
  const reports = [];
  const waiting = { onprogress: (progress) => reports.push(progress.progress) };
  const some = (await call(client, "session_wait", { session_id: long.session_id, timeout_s: 1 }, waiting)).structuredContent;
  assert.equal(some.status, "running");
  assert(reports.every((value, at) => at === 0 || value > reports[at - 1]), reports.join());
  const abort = new AbortController();
  const aborted = call(client, "session_wait", { session_id: long.session_id }, { signal: abort.signal });
  abort.abort("enough");
  await assert.rejects(aborted);
  assert(!(await call(client, "session_stop", { session_id: long.session_id })).isError);
  const stopped = (await call(client, "session_wait", { session_id: long.session_id })).structuredContent;
  assert.equal(stopped.status, "stopped");

  // The connection is lost in the middle; the log has the task.
  const kept = (await call(client, "session_start", { message: "/wait 2" })).structuredContent;
  const lost = call(client, "session_wait", { session_id: kept.session_id });
  lost.catch(() => {});
  await client.close();
  client = await connected(open());
  const again = (await call(client, "session_wait", { session_id: kept.session_id })).structuredContent;
  // The process of a client on stdio ends with it, and stops its own tasks; over HTTP they go on.
  assert.equal(again.status, name === "http" ? "completed" : "stopped", JSON.stringify(again));
  await client.close();
  console.log(`typescript client on ${name}: ${tools.length} tools, ${reports.length} reports of progress, a task cancelled, and one found again`);
}

await drive("stdio", () => new StdioClientTransport({ command: parlor, args: ["stdio", "mcp"], env: process.env }));
const headers = { Authorization: `Bearer ${token}` };
await drive("http", () => new StreamableHTTPClientTransport(new URL(`${address}/mcp`), { requestInit: { headers } }));
