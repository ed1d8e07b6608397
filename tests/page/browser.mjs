// A browser whose console must stay silent, and the questions that tests ask of a page.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { PATIENCE } from "./server.mjs";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What a browser says by itself when a server is away or refuses; allowed only where a test makes that happen. */
export const NETWORK = /^(Failed to load resource:|WebSocket connection to )/;

/** A browser for one file of tests. */
export class Browser {
  static async launch() {
    const browser = new Browser();
    browser.inner = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
    return browser;
  }

  close() {
    return this.inner.close();
  }

  /** A page of a new visitor. `allow` is what its console may say. One without a clock looks at nothing unless it is told to. */
  async visit(server, { path = "/", allow = null, isToured = true, hasClock = true, ...options } = {}) {
    const context = await this.inner.newContext({ viewport: { width: 1024, height: 768 }, reducedMotion: "reduce", ...options });
    await context.grantPermissions(["clipboard-read", "clipboard-write"]).catch(() => undefined);
    if (isToured) await context.addInitScript(() => localStorage.setItem("parlor.toured", "1"));
    if (!hasClock) await context.addInitScript(() => (window.setInterval = () => 0));
    return new Visit(await this.open(context, server, path), context, server, allow, this);
  }

  async open(context, server, path) {
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE);
    return { page, address: server.address + path };
  }
}

/** One page that is open. */
export class Visit {
  constructor({ page, address }, context, server, allow, browser) {
    Object.assign(this, { page, address, context, server, allow, browser });
    this.complaints = [];
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !allow?.test(message.text())) this.complaints.push(message.text());
    });
    page.on("pageerror", (error) => this.complaints.push(String(error)));
  }

  async begin() {
    await this.page.goto(this.address);
    return this;
  }

  /** Another page of the same visitor. */
  async another(path) {
    const visit = new Visit(await this.browser.open(this.context, this.server, path), this.context, this.server, this.allow, this.browser);
    return visit.begin();
  }

  get field() {
    return this.page.getByRole("textbox", { name: "Message" });
  }

  async say(text) {
    await this.field.fill(text);
    await this.field.press("Enter");
  }

  /** The turn of what was asked, as it stands on the screen. */
  turn(text) {
    return this.page.locator("article").filter({ has: this.page.getByText(text, { exact: true }) }).last();
  }

  /** Waits until a turn has come to an end. */
  async ended(text, status = "completed") {
    await this.page.locator(`article[data-status="${status}"]`).filter({ has: this.page.getByText(text, { exact: true }) }).last().waitFor();
    return this.turn(text);
  }

  /** Begins a terminal, and waits until its shell listens: what is typed before that is seen twice, from the terminal and from the shell. */
  async newTerminal() {
    await this.page.getByRole("button", { name: "New terminal" }).click();
    await this.page.locator(".xterm-helper-textarea:focus").waitFor();
    await this.page.locator(".xterm-rows").getByText(/[$#]\s*$/).first().waitFor();
  }

  connection(state) {
    return this.page.locator(`[data-connection="${state}"]`).waitFor();
  }

  /** How far down the screen something is, once it stays there. */
  settled(locator) {
    return locator.evaluate(async (element) => {
      for (let [before, now] = [NaN, element.getBoundingClientRect().y]; ; [before, now] = [now, element.getBoundingClientRect().y]) {
        if (before === now) return now;
        for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
      }
    });
  }

  /** What can be seen must be usable by everybody. */
  async isAccessible(what) {
    await this.page.evaluate(axe);
    const { violations } = await this.page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const flaws = violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}: ${node.failureSummary}`));
    assert.deepEqual(flaws, [], `${what} is not for everybody`);
  }

  /** Ends the visit; by then the console must have said nothing. */
  async end() {
    await this.context.close();
    assert.deepEqual(this.complaints, [], "the console complained");
  }
}
