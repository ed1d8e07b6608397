// Terminals: a shell on the machine of the server, live, on a page whose policy allows no inline styles.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { Server, until } from "./server.mjs";
import { setUp } from "./stage.mjs";

const { server, browser, visit } = await setUp({ path: "/#/terminals" });
const screen = (at) => at.page.locator(".xterm-rows");

test("a terminal is typed into, sized, looked at again, and ended", async () => {
  const at = await visit();
  await at.newTerminal();
  await at.page.keyboard.type("echo $((40 + 2)) is it; stty size\n");
  await screen(at).getByText("42 is it").waitFor();
  // The terminal has the size of its place, and not that of its birth.
  const size = await screen(at).evaluate((element) => element.children.length);
  await screen(at).getByText(new RegExp(`^${size} \\d+$`)).waitFor();
  await at.isAccessible("a terminal");

  const again = await at.another(`/${new URL(at.page.url()).hash}`);
  await screen(again).getByText("42 is it").waitFor();
  await at.page.locator(".xterm-helper-textarea").press("x");
  await screen(again).getByText(/x\s*$/).first().waitFor();

  const list = at.page.getByRole("list", { name: "Processes" });
  await list.getByText(/running/).waitFor();
  await list.getByRole("button", { name: /^End/ }).click();
  await list.getByText(/ended with/).waitFor();
  await at.page.getByRole("status").getByText(/Ended with/).first().waitFor();
  await list.getByRole("button", { name: /^Remove/ }).click();
  await at.page.getByText("Nothing runs here.").waitFor();
  assert.deepEqual(again.complaints, []);
  await at.end();
});

test("a shell that ends is told to have ended in the list too, and waits for no clock", async () => {
  const at = await visit({ hasClock: false });
  await at.newTerminal();
  await at.page.keyboard.type("exit 3\n");
  await at.page.getByRole("status").getByText("Ended with 3.").waitFor();
  await at.page.getByRole("list", { name: "Processes" }).getByText("ended with 3").waitFor();
  await at.end();
});

test("a terminal that the list has before its start is answered is listed once", async () => {
  const at = await visit();
  await at.page.route("**/api/processes", async (route) => {
    if (route.request().method() !== "POST") return route.continue();
    const response = await route.fetch();
    const { id } = await response.json();
    await at.page.locator(`a[href$="${encodeURIComponent(id)}"]`).waitFor();
    await route.fulfill({ response });
  });
  await at.newTerminal();
  await at.end();
});

test("where somebody comes back to a terminal it has the size of that window", async () => {
  const at = await visit();
  await at.newTerminal();
  const rows = await screen(at).evaluate((element) => element.children.length);
  const small = await at.another(`/${new URL(at.page.url()).hash}`);
  await small.page.setViewportSize({ width: 900, height: 400 });
  await until("a smaller terminal", async () => (await screen(small).evaluate((element) => element.children.length)) < rows);
  await small.page.locator(".xterm").click();
  await small.page.keyboard.type("stty size | sed 's/^/small /'\n");
  await screen(small).getByText(/^small \d/).waitFor();
  assert.equal(await screen(small).getByText(new RegExp(`^small ${rows} `)).count(), 0);
  await small.page.close();
  await at.page.locator(".xterm").click();
  await at.page.keyboard.type("stty size | sed 's/^/large /'\n");
  await screen(at).getByText(new RegExp(`^large ${rows} `)).waitFor();
  await at.end();
});

test("output has its colours, although the page allows no inline styles", async () => {
  const at = await visit();
  await at.newTerminal();
  await at.page.keyboard.type("printf '\\033[31m%s\\033[0m\\n' r''ed\n");
  const red = screen(at).locator("span", { hasText: /^red$/ });
  await red.waitFor();
  const [colour, plain] = await red.evaluate((element) => [getComputedStyle(element).color, getComputedStyle(element.parentElement).color]);
  assert.notEqual(colour, plain);
  await at.end();
});

test("a terminal whose socket breaks comes back, and shows nothing twice", async () => {
  const at = await browser.visit(server, { path: "/#/terminals" });
  // Real sockets: a stand-in goes on sending to one that is closing, of which the browser complains.
  await at.page.addInitScript(() => {
    const { WebSocket } = window;
    window.sockets = [];
    window.WebSocket = class extends WebSocket {
      constructor(...how) {
        super(...how);
        if (this.url.includes("/api/processes/")) window.sockets.push(this);
      }
    };
  });
  await at.begin();
  await at.newTerminal();
  await at.page.keyboard.type("echo o''nce\n");
  await screen(at).getByText(/^once/).waitFor();
  const length = await at.page.evaluate(() => {
    window.sockets.at(-1).close(4000);
    return window.sockets.length;
  });
  await at.page.waitForFunction((length) => window.sockets.length > length && window.sockets.at(-1).readyState === WebSocket.OPEN, length);
  await at.page.getByRole("status").filter({ hasText: "Looking for it again" }).waitFor({ state: "detached" });
  await at.page.keyboard.type("echo t''wice\n");
  await screen(at).getByText(/^twice/).waitFor();
  assert.equal(await screen(at).getByText(/^once/).count(), 1);
  await at.end();
});

test("a process that went with its server is told to be gone, and one that is looked for in vain can be looked for again", async (t) => {
  const other = await Server.start();
  t.after(() => other.stop());
  const at = await (await browser.visit(other, { path: "/#/terminals", allow: NETWORK })).begin();
  await at.newTerminal();
  const address = new URL(at.page.url()).hash;
  await at.page.clock.install();
  await other.kill();
  const note = at.page.locator("section").getByRole("status");
  await note.getByText("Looking for it again").waitFor();
  await until("the last attempt", async () => {
    await at.page.clock.runFor(1000);
    return note.getByText("The server does not answer").isVisible();
  });
  await other.start();
  await at.page.getByRole("button", { name: "Try again" }).click();
  await note.getByText("This process is gone").waitFor();
  await at.isAccessible("a terminal that is gone");
  await at.page.getByRole("button", { name: "Close" }).click();
  await at.page.getByText("Nothing runs here.").waitFor();
  await at.page.goto(`${other.address}/${address}`);
  await at.page.getByRole("heading", { name: "This process is gone." }).waitFor();
  await at.end();
});

test("what a client on stdio runs on a terminal can be watched, and only watched", async (t) => {
  const exec = server.begin("stdio", "exec");
  t.after(() => exec.kill("SIGKILL"));
  const command = { processId: "p", argv: ["sh", "-c", "echo seen from here; exec sleep 60"], cwd: "/", env: {}, tty: true };
  for (const frame of [{ id: 1, method: "initialize", params: { clientName: "me" } }, { method: "initialized" }, { id: 2, method: "command/exec", params: command }]) {
    exec.stdin.write(`${JSON.stringify(frame)}\n`);
  }
  const at = await visit();
  const line = at.page.getByRole("list", { name: "Processes" }).getByRole("listitem").filter({ hasText: "seen from here" });
  await line.getByText(/exec · running/).waitFor();
  assert.equal(await line.getByRole("button").count(), 0);
  await line.getByRole("link").click();
  await screen(at).getByText("seen from here").waitFor();
  await at.page.getByText("you are looking on").waitFor();
  await at.end();
});
