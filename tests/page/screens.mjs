// Every screen of the page, and how to open it. `accessibility.test.mjs` checks each of them.
// As a program it takes a screenshot of each: PARLOR_BINARY=… node screens.mjs FOLDER [SCREEN …]
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Browser, NETWORK } from "./browser.mjs";
import { Server } from "./server.mjs";

/** The viewports of a phone, a small and a large screen. */
export const SIZES = [[390, 844], [1024, 768], [1920, 1080]];

/** Makes the server treat requests as coming from another machine. */
export const REMOTE = { extraHTTPHeaders: { "X-Forwarded-For": "203.0.113.9" } };

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/** An answer with every kind of markdown, and one with markdown at its limits. */
const LONG_ANSWER = `# A report

It has **words**, \`names\`, a [link](https://example.com/a/rather/long/address) and ${"a sentence that goes on ".repeat(6)}.

## Steps

1. First the ground is looked at.
   - then the beds
2. Then something is planted.

> Somebody said so.

| plant | when | where | how much water it wants in a dry summer |
|---|---|---|---|
| beans | in May | by the fence | much |
| sage | in March | in the sun | little |

\`\`\`rust
fn main() { println!("a line that is far too long for a small screen, so that it has to be scrolled sideways by whoever wants to read it"); }
\`\`\`

- [x] done
- [ ] not done`;
const ODD_ANSWER = "###### Deep\n\n# High\n\n#\n\n[](https://example.com) [ ](https://example.com/a) ![](https://example.com/b.png) [![](https://example.com/c.png)](https://example.com/d) ![]()\n\n| | b |\n|---|---|\n| | 2 |\n\n```\n```\n\n1. \n\n---";

/** A command that prints columns, and a line longer than a screen. */
const WIDE_OUTPUT = "!ls -la /; seq -s ' ' 400";

/** Creates the sessions that the screens show. */
export async function createSessions(server) {
  await server.sendAll("demo", ["deploy web", "break", "deploy api"], "demo");
  await server.sendAll("long answer", [`echo ${LONG_ANSWER}`], "demo");
  await server.sendAll("odd", [`echo ${ODD_ANSWER}`], "demo");
  await server.sendAll("other", ["/say How are you?", "!uname -s", WIDE_OUTPUT]);
}

/** How to open each screen: `options` of `Browser.newPage`, the `connection` state to wait for first, and the steps in `go`. */
export const screens = {
  welcome: { go: (tab) => tab.page.getByText("Start a conversation").waitFor() },
  tour: { options: { isTourDone: false }, go: (tab) => tab.page.getByRole("region", { name: "Tour" }).waitFor() },
  "tour end": {
    options: { isTourDone: false },
    async go(tab) {
      for (const step of ["Run it", "Show the steps", "Continue"]) await tab.page.getByRole("button", { name: step }).click();
    },
  },
  token: { options: { allow: NETWORK, ...REMOTE }, connection: "", go: (tab) => tab.page.getByLabel("Token").waitFor() },
  chat: {
    path: "/#/chat/demo",
    async go(tab) {
      const turn = await tab.waitForTurn("deploy api");
      await turn.locator(".hljs-keyword").first().waitFor();
    },
  },
  timeline: {
    path: "/#/chat/demo",
    async go(tab) {
      const turn = await tab.waitForTurn("deploy api");
      await turn.getByRole("button", { name: /^Worked/ }).click();
      await turn.getByRole("img", { name: /Duration of each step/ }).waitFor();
    },
  },
  "long answer": { path: "/#/chat/long%20answer", go: (tab) => tab.page.locator("article .hljs-keyword").first().waitFor() },
  "odd answer": { path: "/#/chat/odd", go: (tab) => tab.page.locator("article .code").first().waitFor() },
  output: { path: "/#/chat/other", go: (tab) => tab.waitForTurn(WIDE_OUTPUT) },
  failed: {
    async go(tab) {
      await tab.send("/fail The disk of this machine is full.");
      await tab.waitForTurn("/fail The disk of this machine is full.", "failed");
    },
  },
  queue: {
    async go(tab) {
      await tab.send("/wait 60");
      await tab.page.locator('article[data-status="running"]').waitFor();
      await tab.send("/say This waits until the first has come to its end.");
      await tab.page.locator('article[data-status="queued"]').waitFor();
      await tab.messageField.fill("and one more");
    },
  },
  stopped: {
    async go(tab) {
      await tab.send("/wait 60");
      await tab.page.locator('article[data-status="running"] .answer').waitFor();
      await tab.page.keyboard.press("Escape");
      await tab.waitForTurn("/wait 60", "stopped");
    },
  },
  files: {
    async go(tab) {
      const files = [
        { name: "a picture.png", mimeType: "image/png", buffer: Buffer.from(PNG, "base64") },
        { name: "a-file-with-a-name-that-is-rather-long-and-has-no-spaces-in-it.txt", mimeType: "text/plain", buffer: Buffer.from("words") },
      ];
      await tab.page.locator("input[type=file]").setInputFiles(files);
      await tab.send("two files");
      await (await tab.waitForTurn("two files")).getByRole("img").waitFor();
      await tab.page.locator("input[type=file]").setInputFiles(files);
      await tab.page.getByRole("list", { name: "Files to send" }).waitFor();
    },
  },
  replaced: {
    path: "/#/chat/other",
    async go(tab) {
      await tab.waitForTurn("!uname -s");
      await (await tab.openTab("/#/chat/other")).waitForConnection("open");
      await tab.waitForConnection("replaced");
    },
  },
  unreachable: {
    path: "/#/sessions",
    options: { allow: NETWORK },
    async go(tab) {
      await tab.page.route("**/api/supr/token", (route) => route.abort());
      await tab.page.goto(`${tab.server.address}/#/chat/demo`);
      await tab.waitForConnection("reconnecting");
      await tab.send("/say This is sent when the server is back.");
    },
  },
  refused: {
    path: "/#/sessions",
    options: { allow: NETWORK },
    async go(tab) {
      await tab.page.route("**/api/supr/token", (route) => route.fulfill({ status: 429 }));
      await tab.page.goto(`${tab.server.address}/#/chat/demo`);
      await tab.waitForConnection("refused");
    },
  },
  "invalid session": { path: `/#/chat/${"a".repeat(300)}`, options: { allow: NETWORK }, connection: "invalid-session", go: (tab) => tab.page.getByText("There is no such conversation.").waitFor() },
  sessions: { path: "/#/sessions", go: (tab) => tab.page.getByRole("link", { name: "deploy web" }).last().waitFor() },
  renaming: {
    path: "/#/sessions",
    async go(tab) {
      await tab.page.getByRole("button", { name: "Rename deploy web" }).click();
      await tab.page.getByRole("textbox", { name: "Title" }).waitFor();
    },
  },
  deletion: {
    path: "/#/sessions",
    async go(tab) {
      await tab.page.getByRole("button", { name: "Delete deploy web" }).click();
      await tab.page.getByRole("dialog").waitFor();
    },
  },
  "no match": {
    path: "/#/sessions",
    async go(tab) {
      await tab.page.getByRole("searchbox").fill("no session has this name");
      await tab.page.getByText("No session matches the search.").waitFor();
    },
  },
  usage: { path: "/#/usage", go: (tab) => tab.page.getByRole("img", { name: /per day/ }).waitFor() },
  "no tokens": {
    path: "/#/usage",
    async go(tab) {
      await tab.page.route("**/api/usage?*", async (route) => {
        const response = await route.fetch();
        const usage = await response.json();
        for (const day of usage.days) Object.assign(day, { input_tokens: 0, output_tokens: 0 });
        await route.fulfill({ response, json: usage });
      });
      await tab.page.getByRole("button", { name: "7 days" }).click();
      await tab.page.getByText("No tokens were used").waitFor();
    },
  },
  terminals: { path: "/#/terminals", go: (tab) => tab.page.getByText(/No processes are running|Choose a process/).waitFor() },
  terminal: {
    path: "/#/terminals",
    async go(tab) {
      await tab.openTerminal();
      await tab.page.keyboard.type("echo here\n");
      await tab.page.locator(".xterm-rows").getByText(/^here/).waitFor();
    },
  },
  shortcuts: {
    async go(tab) {
      await tab.page.getByRole("button", { name: "Keyboard shortcuts" }).click();
      await tab.page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    },
  },
  "add model": {
    async go(tab) {
      await tab.page.getByRole("button", { name: "Add a model" }).click();
      await tab.page.getByRole("dialog").locator(".hljs-attr").first().waitFor();
    },
  },
  menu: {
    sizes: SIZES.slice(0, 1),
    options: { viewport: { width: 390, height: 844 } },
    async go(tab) {
      await tab.page.getByRole("button", { name: "Menu" }).click();
      await tab.page.getByRole("dialog", { name: "Menu" }).getByRole("link", { name: "Sessions" }).waitFor();
    },
  },
};

/** Opens a screen in a new page. */
export async function openScreen(name, browser, server) {
  const { path = "/", options, connection = "open", go } = screens[name];
  const tab = await (await browser.newPage(server, { path, ...options })).open();
  if (connection) await tab.waitForConnection(connection);
  await go(tab);
  return tab;
}

/** Runs a task for each viewport of a screen, in light and in dark colours. */
export async function inEachLayout(tab, name, task) {
  for (const [width, height] of screens[name].sizes ?? SIZES) {
    await tab.page.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"]) {
      await tab.page.emulateMedia({ colorScheme });
      // A page in the background may need a moment to notice its new size.
      await tab.page.waitForFunction((width) => innerWidth === width, width, { polling: 100 });
      await task(width, colorScheme);
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [folder, ...names] = process.argv.slice(2);
  if (!folder) throw new Error("usage: node screens.mjs FOLDER [SCREEN …]");
  mkdirSync(folder, { recursive: true });
  const server = await Server.start();
  const browser = await Browser.launch();
  try {
    await createSessions(server);
    for (const name of names.length ? names : Object.keys(screens)) {
      const tab = await openScreen(name, browser, server);
      await inEachLayout(tab, name, (width, colours) => tab.page.screenshot({ path: join(folder, `${name.replace(" ", "-")}-${width}-${colours}.png`) }));
      await tab.close();
    }
  } finally {
    await browser.close();
    await server.stop();
  }
}
