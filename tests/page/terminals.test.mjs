// Terminals: a live shell on the machine of the server, on a page whose policy forbids inline styles.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { Server, waitUntil } from "./server.mjs";
import { setUp } from "./setup.mjs";

const { server, browser, openPage } = await setUp({ path: "/#/terminals" });
const screen = (tab) => tab.page.locator(".xterm-rows");

test("a terminal takes input, has the size of the window, can be reopened, and can be ended", async () => {
  const tab = await openPage();
  await tab.openTerminal();
  await tab.page.keyboard.type("echo $((40 + 2)) is it; stty size\n");
  await screen(tab).getByText("42 is it").waitFor();
  // The terminal has the size of the window, not the initial 80x24.
  const size = await screen(tab).evaluate((element) => element.children.length);
  await screen(tab).getByText(new RegExp(`^${size} \\d+$`)).waitFor();
  await tab.checkAccessibility("a terminal");

  const second = await tab.openTab(`/${new URL(tab.page.url()).hash}`);
  await screen(second).getByText("42 is it").waitFor();
  await tab.page.locator(".xterm-helper-textarea").press("x");
  await screen(second).getByText(/x\s*$/).first().waitFor();

  const list = tab.page.getByRole("list", { name: "Processes" });
  await list.getByText(/running/).waitFor();
  await list.getByRole("button", { name: /^End/ }).click();
  await list.getByText(/ended (by|with)/).waitFor();
  await tab.page.getByRole("status").getByText(/Ended (by|with)/).first().waitFor();
  await list.getByRole("button", { name: /^Remove/ }).click();
  await tab.page.getByText("No processes are running.").waitFor();
  assert.deepEqual(second.consoleErrors, []);
  await tab.close();
});

test("the list shows that a shell has ended without polling", async () => {
  const tab = await openPage({ hasPolling: false });
  await tab.openTerminal();
  await tab.page.keyboard.type("exit 3\n");
  await tab.page.getByRole("status").getByText("Ended with exit code 3.").waitFor();
  await tab.page.getByRole("list", { name: "Processes" }).getByText("ended with exit code 3").waitFor();
  await tab.close();
});

test("a terminal that a refresh lists before its start is answered is listed once", async () => {
  const tab = await openPage();
  await tab.page.route("**/api/processes", async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    const response = await route.fetch();
    const { id } = await response.json();
    await tab.page.locator(`a[href$="${encodeURIComponent(id)}"]`).waitFor();
    await route.fulfill({ response });
  });
  await tab.openTerminal();
  await tab.close();
});

test("a terminal takes the size of the window to which the user returns", async () => {
  const tab = await openPage();
  await tab.openTerminal();
  const rows = await screen(tab).evaluate((element) => element.children.length);
  const small = await tab.openTab(`/${new URL(tab.page.url()).hash}`);
  await small.page.setViewportSize({ width: 900, height: 400 });
  await waitUntil("a smaller terminal", async () => (await screen(small).evaluate((element) => element.children.length)) < rows);
  await small.page.locator(".xterm").click();
  await small.page.keyboard.type("stty size | sed 's/^/small /'\n");
  await screen(small).getByText(/^small \d/).waitFor();
  assert.equal(await screen(small).getByText(new RegExp(`^small ${rows} `)).count(), 0);
  await small.page.close();
  await tab.page.locator(".xterm").click();
  await tab.page.keyboard.type("stty size | sed 's/^/large /'\n");
  await screen(tab).getByText(new RegExp(`^large ${rows} `)).waitFor();
  await tab.close();
});

test("output has colours, although the policy forbids inline styles", async () => {
  const tab = await openPage();
  await tab.openTerminal();
  await tab.page.keyboard.type("printf '\\033[31m%s\\033[0m\\n' r''ed\n");
  const red = screen(tab).locator("span", { hasText: /^red$/ });
  await red.waitFor();
  const [colour, plain] = await red.evaluate((element) => [getComputedStyle(element).color, getComputedStyle(element.parentElement).color]);
  assert.notEqual(colour, plain);
  await tab.close();
});

test("a terminal reconnects after its socket breaks, and shows no output twice", async () => {
  const tab = await browser.newPage(server, { path: "/#/terminals" });
  // Records the real sockets: a mocked one would send to a closing socket, and the browser would log that.
  await tab.page.addInitScript(() => {
    const { WebSocket } = window;
    window.sockets = [];
    window.WebSocket = class extends WebSocket {
      constructor(...args) {
        super(...args);
        if (this.url.includes("/api/processes/")) window.sockets.push(this);
      }
    };
  });
  await tab.open();
  await tab.openTerminal();
  await tab.page.keyboard.type("echo o''nce\n");
  await screen(tab).getByText(/^once/).waitFor();
  const length = await tab.page.evaluate(() => {
    window.sockets.at(-1).close(4000);
    return window.sockets.length;
  });
  await tab.page.waitForFunction((length) => window.sockets.length > length && window.sockets.at(-1).readyState === WebSocket.OPEN, length);
  await tab.page.getByRole("status").filter({ hasText: "The connection to this process is lost" }).waitFor({ state: "detached" });
  assert.match(await tab.page.evaluate(() => window.sockets.at(-1).url), /\?after=[1-9]/);
  await tab.page.keyboard.type("echo t''wice\n");
  await screen(tab).getByText(/^twice/).waitFor();
  assert.equal(await screen(tab).getByText(/^once/).count(), 1);
  await tab.close();
});

test("the terminal reports a lost process, reconnects by button, and says when the process no longer exists", async (t) => {
  const other = await Server.start();
  t.after(() => other.stop());
  const tab = await (await browser.newPage(other, { path: "/#/terminals", allow: NETWORK })).open();
  await tab.openTerminal();
  const address = new URL(tab.page.url()).hash;
  await tab.page.clock.install();
  await other.kill();
  const note = tab.page.locator("section").getByRole("status");
  await note.getByText("The connection to this process is lost").waitFor();
  await waitUntil("the last attempt", async () => {
    await tab.page.clock.runFor(1000);
    return note.getByText("The server does not answer").isVisible();
  });
  await other.start();
  await tab.page.getByRole("button", { name: "Try again" }).click();
  await note.getByText("This process no longer exists").waitFor();
  await tab.checkAccessibility("a terminal whose process is gone");
  await tab.page.getByRole("button", { name: "Close" }).click();
  await tab.page.getByText("No processes are running.").waitFor();
  await tab.page.goto(`${other.address}/${address}`);
  await tab.page.getByRole("heading", { name: "This process no longer exists." }).waitFor();
  await tab.close();
});

test("a process of an exec client on stdio can be watched, but not ended", async (t) => {
  const exec = server.spawn("stdio", "exec");
  t.after(() => exec.kill("SIGKILL"));
  const command = { processId: "p", argv: ["sh", "-c", "echo seen from here; exec sleep 60"], cwd: "/", env: {}, tty: true };
  for (const frame of [{ id: 1, method: "initialize", params: { clientName: "me" } }, { method: "initialized" }, { id: 2, method: "command/exec", params: command }]) {
    exec.stdin.write(`${JSON.stringify(frame)}\n`);
  }
  const tab = await openPage();
  const row = tab.page.getByRole("list", { name: "Processes" }).getByRole("listitem").filter({ hasText: "seen from here" });
  await row.getByText(/exec · running/).waitFor();
  assert.equal(await row.getByRole("button").count(), 0);
  await row.getByRole("link").click();
  await screen(tab).getByText("seen from here").waitFor();
  await tab.page.getByText("you can only watch it").waitFor();
  await tab.close();
});
