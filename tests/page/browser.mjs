// A browser whose pages must not log errors, and the helpers with which tests use a page.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { TIMEOUT_MS } from "./server.mjs";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What the browser itself logs when a server is unreachable or refuses; allowed only in tests that cause it. */
export const NETWORK = /^(Failed to load resource:|WebSocket connection to )/;

/** A browser for one test file. */
export class Browser {
  static async launch() {
    const browser = new Browser();
    browser.inner = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
    return browser;
  }

  close() {
    return this.inner.close();
  }

  /** A page with new cookies and storage; `open` loads it. `allow` matches the console errors that are expected. Without polling,
   *  the page refreshes its lists only after events. */
  async newPage(server, { path = "/", allow = null, isTourDone = true, hasPolling = true, ...options } = {}) {
    const context = await this.inner.newContext({ viewport: { width: 1024, height: 768 }, reducedMotion: "reduce", ...options });
    await context.grantPermissions(["clipboard-read", "clipboard-write"]).catch(() => undefined);
    if (isTourDone) await context.addInitScript(() => localStorage.setItem("parlor.toured", "1"));
    if (!hasPolling) await context.addInitScript(() => (window.setInterval = () => 0));
    return Tab.create(context, server, path, allow);
  }
}

/** One tab with the page. */
export class Tab {
  constructor(page, context, server, path, allow) {
    Object.assign(this, { page, context, server, path, allow });
    this.consoleErrors = [];
    page.setDefaultTimeout(TIMEOUT_MS);
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !allow?.test(message.text())) this.consoleErrors.push(message.text());
    });
    page.on("pageerror", (error) => this.consoleErrors.push(String(error)));
  }

  static async create(context, server, path, allow) {
    return new Tab(await context.newPage(), context, server, path, allow);
  }

  async open() {
    await this.page.goto(this.server.address + this.path);
    return this;
  }

  /** Opens another tab of the same browser profile. */
  async openTab(path) {
    return (await Tab.create(this.context, this.server, path, this.allow)).open();
  }

  get messageField() {
    return this.page.getByRole("textbox", { name: "Message" });
  }

  /** Types a message and presses Enter. */
  async send(text) {
    await this.messageField.fill(text);
    await this.messageField.press("Enter");
  }

  /** The last turn with this message. */
  turn(text) {
    return this.page.locator("article").filter({ has: this.page.getByText(text, { exact: true }) }).last();
  }

  /** Waits until a turn has a status; returns the turn. */
  async waitForTurn(text, status = "completed") {
    await this.page.locator(`article[data-status="${status}"]`).filter({ has: this.page.getByText(text, { exact: true }) }).last().waitFor();
    return this.turn(text);
  }

  /** Opens a terminal and waits for the prompt of its shell: the terminal and the shell would both echo what is typed before. */
  async openTerminal() {
    await this.page.getByRole("button", { name: "New terminal" }).click();
    await this.page.locator(".xterm-helper-textarea:focus").waitFor();
    await this.page.locator(".xterm-rows").getByText(/[$#]\s*$/).first().waitFor();
  }

  waitForConnection(state) {
    return this.page.locator(`[data-connection="${state}"]`).waitFor();
  }

  /** The vertical position of an element, once it has stopped moving. */
  stableTop(locator) {
    return locator.evaluate(async (element) => {
      for (let [before, now] = [NaN, element.getBoundingClientRect().y]; ; [before, now] = [now, element.getBoundingClientRect().y]) {
        if (before === now) return now;
        for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
      }
    });
  }

  /** Fails if axe finds an accessibility problem on the screen. */
  async checkAccessibility(screen) {
    await this.page.evaluate(axe);
    const { violations } = await this.page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const problems = violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}: ${node.failureSummary}`));
    assert.deepEqual(problems, [], `accessibility problems: ${screen}`);
  }

  /** Closes the tab and its profile; fails if the page logged an error. */
  async close() {
    await this.context.close();
    assert.deepEqual(this.consoleErrors, [], "the page logged errors");
  }
}
