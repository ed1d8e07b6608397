// A small chat over the supr door: the token, a socket, bubbles, and the way back after a break.
"use strict";

const SESSION = "parlor.session";
const TOKEN = "parlor.token";
/** The longest wait before the next attempt to connect. */
const LONGEST_WAIT = 5000;
/** How many events are remembered, to show none twice. */
const REMEMBERED = 2000;

const part = (id) => document.getElementById(id);
const log = part("log"), ask = part("ask"), message = part("message");

let token = "";
let session = localStorage.getItem(SESSION) || fresh();
/** Whether something was said in it, so that there is something to recall. */
let isKnown = localStorage.getItem(SESSION) !== null;
let socket = null;
let attempts = 0;
let timer = 0;
let lastEvent = "";
let activeRun = "";
let agentIsChosen = false;
let early = null;
const seen = new Set();

function fresh() {
  return self.crypto.randomUUID ? crypto.randomUUID() : `session-${Date.now()}-${Math.random().toString(16).slice(2)}`;
}

function say(text) { part("state").textContent = text; }
function work(text) { part("work").textContent = text; }

function add(element) {
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  log.append(element);
  if (follows) log.scrollTop = log.scrollHeight;
}

function bubble(role, text) {
  const element = document.createElement("div");
  element.className = `bubble ${role}`;
  const who = document.createElement("span");
  who.className = "unseen";
  who.textContent = role === "user" ? "You: " : "Agent: ";
  element.append(who, text);
  add(element);
  return element;
}

function notice(text) {
  const element = document.createElement("p");
  element.className = "notice";
  element.textContent = text;
  add(element);
}

async function api(path) {
  const kept = sessionStorage.getItem(TOKEN);
  const answer = await fetch(path, kept ? { headers: { Authorization: `Bearer ${kept}` } } : {});
  if (answer.status === 401) throw new Error("locked");
  return answer;
}

/** Shows what was said before. Events that come meanwhile wait, so that nothing is shown in the wrong place. */
async function recall() {
  early = [];
  const answer = await api(`/api/sessions/${encodeURIComponent(session)}`).catch(() => null);
  const said = answer && answer.ok ? (await answer.json()).messages : [];
  log.replaceChildren();
  for (const { role, content } of said) bubble(role, content);
  const last = said.length ? said[said.length - 1] : null;
  const waiting = early;
  early = null;
  for (const event of waiting) {
    const isShown = last && event.event_type === "message.completed" && event.data.text === last.content;
    if (!isShown) onEvent(event);
  }
}

async function connect() {
  clearTimeout(timer);
  try {
    const answer = await api("/api/pico/token");
    token = (await answer.json()).token;
  } catch (error) {
    if (error.message === "locked") return unlock();
    return again("The server does not answer");
  }
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const after = lastEvent ? `&after=${encodeURIComponent(lastEvent)}` : "";
  const address = `${scheme}//${location.host}/supr/ws?session_id=${encodeURIComponent(session)}${after}`;
  const mine = new WebSocket(address, [`token.${token}`]);
  socket = mine;
  mine.onopen = () => {
    attempts = 0;
    say("Connected");
    if (!lastEvent && isKnown) recall();
  };
  mine.onmessage = ({ data }) => {
    if (mine !== socket) return;
    let frame;
    try { frame = JSON.parse(data); } catch { return; }
    if (typeof frame.event_type === "string") receive(frame); else onTyped(frame);
  };
  mine.onclose = ({ code }) => {
    if (mine !== socket) return;
    if (code === 4001) {
      say("This chat is open in another window. Send something to take it back.");
      socket = null;
      return;
    }
    again("Disconnected");
  };
}

function again(why) {
  const wait = Math.min(1000 * 2 ** attempts, LONGEST_WAIT);
  attempts += 1;
  say(`${why}; trying again…`);
  clearTimeout(timer);
  timer = setTimeout(connect, wait);
}

function unlock() {
  say("A token is needed");
  const dialog = part("locked");
  if (!dialog.open) dialog.showModal();
}

function receive(event) {
  if (event.session_id !== session || seen.has(event.event_id)) return;
  seen.add(event.event_id);
  if (seen.size > REMEMBERED) seen.delete(seen.values().next().value);
  lastEvent = event.event_id;
  if (early) early.push(event); else onEvent(event);
}

function onEvent({ event_type: type, run_id: run, data }) {
  switch (type) {
    case "run.started":
      activeRun = run;
      running(true);
      return work("Working…");
    case "message.completed":
      if (data.text) bubble("assistant", data.text);
      return;
    case "step.started": return work(data.title || "Working…");
    case "step.updated": return work(data.headline || "Working…");
    case "tool.called": return work(data.display_name || `Using ${data.tool_name}`);
    case "tool.progress": return work(data.message || "");
    case "error.raised":
      if (data.scope === "run") notice(data.message);
      return;
    case "run.completed":
    case "run.failed":
      if (type === "run.failed" && data.error_code !== "RUN_CANCELLED" && !data.message) notice("The run failed.");
      if (run === activeRun) running(false);
  }
}

function onTyped({ type, payload }) {
  if (type === "agent.list") listAgents(payload);
  if (type === "error") { notice(payload.message); if (!activeRun) running(false); }
  if (type === "media.create") showMedia(payload);
}

function listAgents({ agents, default: standard }) {
  const chosen = agentIsChosen ? part("agent").value : standard;
  part("agent").replaceChildren(...agents.map(({ id, name }) => new Option(name, id, id === standard, id === chosen)));
  part("agents").hidden = agents.length < 2;
}

function showMedia({ type, data, filename, content_type: kind, caption }) {
  const element = bubble("assistant", caption || "");
  const address = `data:${kind || "application/octet-stream"};base64,${data}`;
  if (type === "image") {
    const image = new Image();
    image.alt = filename || "image";
    image.src = address;
    return element.append(image);
  }
  const link = document.createElement("a");
  link.download = filename || "file";
  link.href = address;
  link.textContent = filename || "file";
  element.append(link);
}

function running(is) {
  if (!is) { activeRun = ""; work(""); }
  part("stop").disabled = !is;
}

function send(frame) {
  if (!socket || socket.readyState !== WebSocket.OPEN) return false;
  socket.send(JSON.stringify(frame));
  return true;
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  const content = message.value;
  if (!content.trim()) return;
  const payload = { content };
  if (agentIsChosen) payload.agent_id = part("agent").value;
  if (!send({ type: "message.send", id: `msg-${Date.now()}`, payload })) {
    notice("Not connected; nothing was sent.");
    attempts = 0;
    connect();
    return;
  }
  localStorage.setItem(SESSION, session);
  isKnown = true;
  bubble("user", content);
  log.scrollTop = log.scrollHeight;
  message.value = "";
  work("Sent");
});

message.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    ask.requestSubmit();
  }
});

part("stop").addEventListener("click", () => send({ type: "run.stop", payload: { run_id: activeRun } }));
part("agent").addEventListener("change", () => { agentIsChosen = true; });
part("fresh").addEventListener("click", () => {
  session = fresh();
  isKnown = false;
  localStorage.removeItem(SESSION);
  lastEvent = "";
  seen.clear();
  running(false);
  log.replaceChildren();
  const old = socket;
  socket = null;
  if (old) old.close(1000);
  connect();
  message.focus();
});
part("unlock").addEventListener("submit", () => {
  sessionStorage.setItem(TOKEN, part("token").value.trim());
  part("token").value = "";
  connect();
});

connect();
