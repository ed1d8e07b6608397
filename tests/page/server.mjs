// A real server with its own home folder, for one test file.
import { spawn as spawnProcess } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { WebSocket } from "ws";

/** The time limit of every wait in the tests. */
export const TIMEOUT_MS = 60_000;

const binary = process.env.PARLOR_BINARY;
if (!binary) throw new Error("PARLOR_BINARY must name the parlor program: run scripts/page.sh target/debug/parlor");

/** A name that runs a script if the page inserts it as HTML. */
export const HOSTILE_NAME = `<img src=x onerror="window.broken='name'">`;

const settings = `
[agents.demo]
name = "Demo"
kind = "script"
file = "demo.toml"

[agents.evil]
name = ${JSON.stringify(HOSTILE_NAME)}
kind = "script"
file = "demo.toml"
`;

const script = `
[[on]]
match = "^deploy (\\\\w+)$"
steps = [
  { think = "Checking $1 before anything is touched." },
  { say = "Deploying **$1** now.\\n" },
  { tool = "shell", args = { command = "echo building $1; echo done" } },
  { subagent = "scout", task = "Look at $1", steps = [ { tool = "read_file", args = { path = "$1.log" } }, { say = "$1 looks fine." } ] },
  { usage = { input = 1200, output = 340, cost_micros = 5300 } },
  { say = "All done:\\n\\n\`\`\`rust\\nfn main() { println!(\\"$1\\"); }\\n\`\`\`\\n\\n| step | state |\\n|---|---|\\n| build | ok |\\n" },
]

[[on]]
match = "^break$"
steps = [ { say = "I will try." }, { fail = "no such host", code = "NOT_FOUND" } ]

[[on]]
match = "(?s)^echo (.*)$"
steps = [ { think = "$1" }, { say = "$1" }, { subagent = "$1", task = "$1", steps = [ { say = "$1" } ] } ]

[otherwise]
steps = [ { say = "No script for that." } ]
`;

/** A server that can be killed and restarted on the same address. */
export class Server {
  #child = null;
  #pid = 0;
  #output = "";

  /** On a terminal the server also prints the one-time link. `parent` is where its folder is created. */
  constructor({ isOnTerminal = false, hasSupex = false, extraSettings = "", extraEnvironment = {}, parent = existsSync("/dev/shm") ? "/dev/shm" : tmpdir() } = {}) {
    Object.assign(this, { isOnTerminal, hasSupex, extraEnvironment });
    // In memory, because the files are deleted after the test anyway.
    this.folder = mkdtempSync(join(parent, "parlor-page-"));
    // Separate from the folder in which agents work: their tools must not read the home.
    this.home = join(this.folder, "state");
    mkdirSync(this.home, { mode: 0o700 });
    writeFileSync(join(this.home, "parlor.toml"), settings + extraSettings);
    writeFileSync(join(this.home, "demo.toml"), script);
    this.listen = "127.0.0.1:0";
  }

  static async start(options) {
    const server = new Server(options);
    await server.start();
    return server;
  }

  get address() {
    return `http://${this.listen}`;
  }

  /** All output of the server so far. */
  get output() {
    return this.#output;
  }

  environment() {
    return { PATH: process.env.PATH, HOME: this.folder, PARLOR_HOME: this.home, PARLOR_LOG: "off", SHELL: "/bin/sh", LANG: "C.UTF-8", ...this.extraEnvironment };
  }

  async start() {
    const serveFile = join(this.home, "serve.json");
    rmSync(serveFile, { force: true });
    const command = [binary, "serve", "--listen", this.listen, ...(this.hasSupex ? ["--supex", "127.0.0.1:0", "--supex-repl", "127.0.0.1:0"] : ["--no-supex"])];
    const [program, ...args] = this.isOnTerminal ? ["script", "-qfc", command.join(" "), "/dev/null"] : command;
    this.#child = spawnProcess(program, args, { cwd: this.folder, env: this.environment(), stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) stream.on("data", (text) => (this.#output += text));
    await waitUntil("the server is ready", () => {
      if (this.#child.exitCode !== null) throw new Error(`the server exited: ${this.#output}`);
      return existsSync(serveFile) && readFileSync(serveFile, "utf8").endsWith("}\n");
    });
    ({ http: this.listen, pid: this.#pid, supex: this.supex, supex_repl: this.repl } = JSON.parse(readFileSync(serveFile, "utf8")));
  }

  /** Kills the server with SIGKILL. */
  async kill() {
    const child = this.#child;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    process.kill(this.#pid, "SIGKILL");
    await ended;
  }

  async stop() {
    if (this.#child?.exitCode === null && this.#child.signalCode === null) await this.kill();
    // A process that the test has started besides the server may still be ending, and write its last file.
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }

  /** Starts a subcommand of parlor with the same home. */
  spawn(...args) {
    return spawnProcess(binary, args, { cwd: this.folder, env: this.environment(), stdio: ["pipe", "pipe", "ignore"] });
  }

  /** Runs a subcommand to its end; returns its trimmed output. */
  async run(...args) {
    const child = this.spawn(...args);
    child.stdin.end();
    let out = "";
    child.stdout.on("data", (text) => (out += text));
    await new Promise((resolve) => child.once("close", resolve));
    return out.trim();
  }

  async token() {
    return (await (await fetch(`${this.address}/api/supr/token`)).json()).token;
  }

  /** Sends messages to a session without a page, and waits until all are answered. */
  async sendAll(session, messages, agent) {
    const socket = new WebSocket(`ws://${this.listen}/supr/ws?session_id=${encodeURIComponent(session)}`, [`token.${await this.token()}`]);
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    const texts = messages[Symbol.iterator]();
    await new Promise((resolve, reject) => {
      let unanswered = 0;
      const next = () => {
        const { value, done } = texts.next();
        if (!done) {
          unanswered += 1;
          socket.send(JSON.stringify({ type: "message.send", payload: { content: value, ...(agent && { agent_id: agent }) } }));
        } else if (unanswered === 0) resolve();
      };
      socket.on("message", (data) => {
        const frame = JSON.parse(data);
        if (frame.parent_run_id || !["run.completed", "run.failed"].includes(frame.event_type)) return;
        unanswered -= 1;
        next();
      });
      socket.on("close", (code, reason) => reject(new Error(`the socket was closed: ${code} ${reason}`)));
      // The server queues at most 16 messages of a session; 12 keep it busy.
      for (let index = 0; index < 12; index++) next();
    });
    socket.removeAllListeners("close");
    socket.close();
  }
}

/** Polls `check` until it returns a truthy value, and returns that value. `what` names the condition in the error. */
export async function waitUntil(what, check) {
  const end = Date.now() + TIMEOUT_MS;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`timeout while waiting for: ${what}`);
    await pause(20);
  }
}
