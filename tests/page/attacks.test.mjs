// A page of another site cannot run code through the TCP doors of the server.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createConnection } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { TIMEOUT_MS } from "./server.mjs";
import { setUp } from "./setup.mjs";

const { server, browser } = await setUp({ hasSupex: true });

/** Serves a page of another origin. A text/plain form sends NAME=VALUE, so the payload has its own lines. */
const evil = createServer((_, response) => response.setHeader("content-type", "text/html").end("<!doctype html><title>evil</title>"));
await new Promise((resolve) => evil.listen(0, "127.0.0.1", resolve));
after(() => evil.close());

/** The requests with which a real client evaluates `code`, through the console and through the bridge. */
const payload = (code) =>
  [
    { jsonrpc: "2.0", id: 1, method: "hello", params: { name: "n", version: "1", agent: "a", pid: 1 } },
    { jsonrpc: "2.0", id: 2, method: "eval", params: { code } },
    { jsonrpc: "2.0", id: 3, method: "tools/call", params: { name: "eval_ruby", arguments: { code } } },
  ]
    .map((line) => JSON.stringify(line))
    .join("\n");

/** Evaluates `code` as a real client; returns the output. */
function evaluate(code) {
  const [host, port] = server.repl.split(":");
  const socket = createConnection(Number(port), host);
  const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
  socket.write(`${payload(code).split("\n").slice(0, 2).join("\n")}\n`);
  return lines
    .next()
    .then(() => lines.next())
    .then(({ value }) => JSON.parse(value).result.output)
    .finally(() => socket.destroy());
}

/** The ways in which a page can send data to an address. Each resolves when the browser has given up. */
const ATTACKS = {
  form: (address, body) => {
    const frame = Object.assign(document.createElement("iframe"), { name: "target" });
    const form = Object.assign(document.createElement("form"), { method: "POST", enctype: "text/plain", action: address, target: "target" });
    form.append(Object.assign(document.createElement("textarea"), { name: "\n", value: `\n${body}\n` }));
    document.body.append(frame, form);
    // The empty frame has loaded by now; the next load event belongs to the response, or to the browser's error page.
    const done = new Promise((resolve) => (frame.onload = resolve));
    form.submit();
    return done;
  },
  fetch: (address, body) => fetch(address, { method: "POST", mode: "no-cors", body: `\n${body}\n` }).catch(() => undefined),
  websocket: (address, body) =>
    new Promise((resolve) => {
      const socket = new WebSocket(address.replace("http", "ws"));
      socket.onopen = () => socket.send(`\n${body}\n`);
      socket.onclose = resolve;
    }),
  turn: async (address, body) => {
    const url = `turn:${address.replace(/^http:\/\/|\/$/g, "")}?transport=tcp`;
    const peer = new RTCPeerConnection({ iceServers: [{ urls: url, username: `\n${body}\n`.slice(0, 500), credential: "x" }] });
    peer.createDataChannel("x");
    const done = new Promise((resolve) => {
      peer.onicecandidateerror = resolve;
      peer.onicegatheringstatechange = () => peer.iceGatheringState === "complete" && resolve();
    });
    await peer.setLocalDescription();
    await done;
    peer.close();
  },
  // Over TCP, STUN messages are framed: each starts with its length in two bytes (RFC 4571).
  ice: async (address, body) => {
    const [host, port] = address.replace(/^http:\/\/|\/$/g, "").split(":");
    const peer = new RTCPeerConnection();
    peer.createDataChannel("x");
    await peer.setLocalDescription();
    const description = [
      "v=0", "o=- 1 1 IN IP4 127.0.0.1", "s=-", "t=0 0", "a=group:BUNDLE 0", "m=application 9 UDP/DTLS/SCTP webrtc-datachannel", "c=IN IP4 0.0.0.0",
      `a=ice-ufrag:${body.replace(/[^A-Za-z0-9]/g, "").slice(0, 250)}`, "a=ice-pwd:aaaaaaaaaaaaaaaaaaaaaaaa",
      `a=fingerprint:sha-256 ${Array(32).fill("AA").join(":")}`, "a=setup:passive", "a=mid:0", "a=sctp-port:5000",
      `a=candidate:1 1 tcp 2105458943 ${host} ${port} typ host tcptype passive`, "",
    ];
    await peer.setRemoteDescription({ type: "answer", sdp: description.join("\r\n") });
    // Waits until the browser has sent a request, or has given up.
    for (let requests = 0; requests === 0 && !["failed", "closed"].includes(peer.iceConnectionState); ) {
      await new Promise((resolve) => requestAnimationFrame(resolve));
      for (const pair of (await peer.getStats()).values()) requests += pair.type === "candidate-pair" ? pair.requestsSent : 0;
    }
    // Kept open: the browser holds the connection as long as the page is open.
    (window.peers ??= []).push(peer);
  },
};

for (const [name, send] of Object.entries(ATTACKS)) {
  for (const door of ["supex", "repl"]) {
    test(`a page of another site cannot run code at the ${door} port by ${name}`, { timeout: TIMEOUT_MS }, async () => {
      const marker = join(server.folder, `${name}-${door}`);
      const tab = await browser.newPage({ address: `http://127.0.0.1:${evil.address().port}` }, { allow: NETWORK, isTourDone: false });
      await tab.open();
      const code = `File.write(${JSON.stringify(marker)}, "in")`;
      await tab.page.evaluate(`(${send})(${JSON.stringify(`http://${server[door]}/`)}, ${JSON.stringify(payload(code))}).then(() => undefined)`);
      assert.equal(await evaluate(`File.exist?(${JSON.stringify(marker)})`), "=> false\n");
      await tab.close();
    });
  }
}

/** How many established connections a local port has. */
const countConnections = (port) => {
  const ESTABLISHED = "01";
  const portSuffix = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const rows = readFileSync("/proc/net/tcp", "utf8").trim().split("\n").slice(1);
  return rows.map((row) => row.trim().split(/\s+/)).filter(([, local, , state]) => local.endsWith(portSuffix) && state === ESTABLISHED).length;
};

test("a page of another site cannot occupy connections of the console by ice", { timeout: TIMEOUT_MS }, async () => {
  const tab = await browser.newPage({ address: `http://127.0.0.1:${evil.address().port}` }, { allow: NETWORK, isTourDone: false });
  await tab.open();
  const peers = Array.from({ length: 8 }, () => `(${ATTACKS.ice})(${JSON.stringify(`http://${server.repl}/`)}, ${JSON.stringify(payload("1"))})`);
  await tab.page.evaluate(`Promise.all([${peers}]).then(() => undefined)`);
  const port = Number(server.repl.split(":")[1]);
  while (countConnections(port) > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  // The console closed the connections: the browser is still trying.
  assert.deepEqual(await tab.page.evaluate("peers.map((peer) => peer.iceConnectionState)"), peers.map(() => "checking"));
  assert.equal(await evaluate("1"), "=> 1\n");
  await tab.close();
});
