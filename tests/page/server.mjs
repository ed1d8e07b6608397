// A real server with a home of its own, for one file of tests.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { WebSocket } from "ws";

/** How long anything may take before a test gives up on it. */
export const PATIENCE = 60_000;

const binary = process.env.PARLOR_BINARY;
if (!binary) throw new Error("PARLOR_BINARY must name the program: run scripts/page.sh target/debug/parlor");

/** What a name could do to a page that trusts it. */
export const HOSTILE = `<img src=x onerror="window.broken='name'">`;

const settings = `
[agents.demo]
name = "Demo"
kind = "script"
file = "demo.toml"

[agents.evil]
name = ${JSON.stringify(HOSTILE)}
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

/** A server that can be killed and started again under the same address. */
export class Server {
  #child = null;
  #pid = 0;
  #log = "";

  /** On a terminal a server also prints the one-time link; `more` goes into its settings, `variables` into its environment. */
  constructor({ isOnTerminal = false, hasSupex = false, more = "", variables = {} } = {}) {
    Object.assign(this, { isOnTerminal, hasSupex, variables });
    // What is written there is gone after the test anyway, so it need not reach a disk.
    this.folder = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "parlor-page-"));
    // Beside what agents work on: their tools read nothing in it.
    this.home = join(this.folder, "state");
    mkdirSync(this.home, { mode: 0o700 });
    writeFileSync(join(this.home, "parlor.toml"), settings + more);
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

  /** What the server has said so far. */
  get said() {
    return this.#log;
  }

  environment() {
    return { PATH: process.env.PATH, HOME: this.folder, PARLOR_HOME: this.home, PARLOR_LOG: "off", SHELL: "/bin/sh", LANG: "C.UTF-8", ...this.variables };
  }

  async start() {
    const place = join(this.home, "serve.json");
    rmSync(place, { force: true });
    const command = [binary, "serve", "--listen", this.listen, ...(this.hasSupex ? ["--supex", "127.0.0.1:0", "--supex-repl", "127.0.0.1:0"] : ["--no-supex"])];
    const [program, ...args] = this.isOnTerminal ? ["script", "-qfc", command.join(" "), "/dev/null"] : command;
    this.#child = spawn(program, args, { cwd: this.folder, env: this.environment(), stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) stream.on("data", (text) => (this.#log += text));
    await until("the server", () => {
      if (this.#child.exitCode !== null) throw new Error(`the server ended: ${this.#log}`);
      return existsSync(place) && readFileSync(place, "utf8").endsWith("}\n");
    });
    ({ http: this.listen, pid: this.#pid, supex: this.supex, supex_repl: this.repl } = JSON.parse(readFileSync(place, "utf8")));
  }

  /** Ends the server at once, without a chance to tidy up. */
  async kill() {
    const child = this.#child;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    process.kill(this.#pid, "SIGKILL");
    await ended;
  }

  async stop() {
    if (this.#child?.exitCode === null && this.#child.signalCode === null) await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Starts another command of the program in the same home. */
  begin(...args) {
    return spawn(binary, args, { cwd: this.folder, env: this.environment(), stdio: ["pipe", "pipe", "ignore"] });
  }

  /** Runs another command to its end, and tells what it printed. */
  async run(...args) {
    const child = this.begin(...args);
    child.stdin.end();
    let out = "";
    child.stdout.on("data", (text) => (out += text));
    await new Promise((resolve) => child.once("close", resolve));
    return out.trim();
  }

  async token() {
    return (await (await fetch(`${this.address}/api/supr/token`)).json()).token;
  }

  /** Says things to a session without a page, one after another, and waits until all are answered. */
  async fill(session, messages, agent) {
    const socket = new WebSocket(`ws://${this.listen}/supr/ws?session_id=${encodeURIComponent(session)}`, [`token.${await this.token()}`]);
    await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
    const texts = messages[Symbol.iterator]();
    await new Promise((resolve, reject) => {
      let open = 0;
      const next = () => {
        const { value, done } = texts.next();
        if (!done) {
          open += 1;
          socket.send(JSON.stringify({ type: "message.send", payload: { content: value, ...(agent && { agent_id: agent }) } }));
        } else if (open === 0) resolve();
      };
      socket.on("message", (data) => {
        const frame = JSON.parse(data);
        if (frame.parent_run_id || !["run.completed", "run.failed"].includes(frame.event_type)) return;
        open -= 1;
        next();
      });
      socket.on("close", (code, reason) => reject(new Error(`the socket was closed: ${code} ${reason}`)));
      // Sixteen may wait; so many keep the session busy.
      for (let index = 0; index < 12; index++) next();
    });
    socket.removeAllListeners("close");
    socket.close();
  }
}

/** Waits for something that must become true. */
export async function until(what, holds) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const value = await holds();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await pause(20);
  }
}
