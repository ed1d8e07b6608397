// Every screen of the page, and how to get there: `looks.test.mjs` looks whether each is for everybody.
// As a program it makes a picture of each: PARLOR_BINARY=… node screens.mjs FOLDER [a name …]
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Browser, NETWORK } from "./browser.mjs";
import { Server } from "./server.mjs";

/** A telephone, a small and a large screen. */
export const SIZES = [[390, 844], [1024, 768], [1920, 1080]];

/** What comes from another machine. */
export const AFAR = { extraHTTPHeaders: { "X-Forwarded-For": "203.0.113.9" } };

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/** What agents write when they write much, and what they should not write. */
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

/** What puts out columns, and a line that is longer than a screen. */
const OUTPUT = "!ls -la /; seq -s ' ' 400";

/** What was said before the screens are looked at. */
export async function furnish(server) {
  await server.fill("looks", ["deploy web", "break", "deploy api"], "demo");
  await server.fill("long answer", [`echo ${LONG_ANSWER}`], "demo");
  await server.fill("odd", [`echo ${ODD_ANSWER}`], "demo");
  await server.fill("other", ["/say How are you?", "!uname -s", OUTPUT]);
}

/** How to get to a screen: `how` says what kind of visit it takes, `line` what the page says of its line first. */
export const screens = {
  welcome: { go: (at) => at.page.getByText("Good to see you.").waitFor() },
  tour: { how: { isToured: false }, go: (at) => at.page.getByRole("region", { name: "Tour" }).waitFor() },
  toured: {
    how: { isToured: false },
    async go(at) {
      for (const step of ["Run it", "Show the work", "Go on"]) await at.page.getByRole("button", { name: step }).click();
    },
  },
  door: { how: { allow: NETWORK, ...AFAR }, line: "", go: (at) => at.page.getByLabel("Token").waitFor() },
  chat: {
    path: "/#/chat/looks",
    async go(at) {
      const turn = await at.ended("deploy api");
      await turn.locator(".hljs-keyword").first().waitFor();
    },
  },
  timeline: {
    path: "/#/chat/looks",
    async go(at) {
      const turn = await at.ended("deploy api");
      await turn.getByRole("button", { name: /^Worked/ }).click();
      await turn.getByRole("img", { name: /Where the time went/ }).waitFor();
    },
  },
  long: { path: "/#/chat/long%20answer", go: (at) => at.page.locator("article .hljs-keyword").first().waitFor() },
  odd: { path: "/#/chat/odd", go: (at) => at.page.locator("article .code").first().waitFor() },
  output: { path: "/#/chat/other", go: (at) => at.ended(OUTPUT) },
  failed: {
    async go(at) {
      await at.say("/fail The disk of this machine is full.");
      await at.ended("/fail The disk of this machine is full.", "failed");
    },
  },
  queue: {
    async go(at) {
      await at.say("/wait 60");
      await at.page.locator('article[data-status="running"]').waitFor();
      await at.say("/say This waits until the first has come to its end.");
      await at.page.locator('article[data-status="queued"]').waitFor();
      await at.field.fill("and one more");
    },
  },
  stopped: {
    async go(at) {
      await at.say("/wait 60");
      await at.page.locator('article[data-status="running"] .answer').waitFor();
      await at.page.keyboard.press("Escape");
      await at.ended("/wait 60", "stopped");
    },
  },
  files: {
    async go(at) {
      const files = [
        { name: "a picture.png", mimeType: "image/png", buffer: Buffer.from(PNG, "base64") },
        { name: "a-file-with-a-name-that-is-rather-long-and-has-no-spaces-in-it.txt", mimeType: "text/plain", buffer: Buffer.from("words") },
      ];
      await at.page.locator("input[type=file]").setInputFiles(files);
      await at.say("two files");
      await (await at.ended("two files")).getByRole("img").waitFor();
      await at.page.locator("input[type=file]").setInputFiles(files);
      await at.page.getByRole("list", { name: "Files to send" }).waitFor();
    },
  },
  elsewhere: {
    path: "/#/chat/other",
    async go(at) {
      await at.ended("!uname -s");
      await (await at.another("/#/chat/other")).connection("open");
      await at.connection("elsewhere");
    },
  },
  away: {
    path: "/#/house",
    how: { allow: NETWORK },
    async go(at) {
      await at.page.route("**/api/supr/token", (route) => route.abort());
      await at.page.goto(`${at.server.address}/#/chat/looks`);
      await at.connection("waiting");
      await at.say("/say This is sent when the server is back.");
    },
  },
  barred: {
    path: "/#/house",
    how: { allow: NETWORK },
    async go(at) {
      await at.page.route("**/api/supr/token", (route) => route.fulfill({ status: 429 }));
      await at.page.goto(`${at.server.address}/#/chat/looks`);
      await at.connection("barred");
    },
  },
  misnamed: { path: `/#/chat/${"a".repeat(300)}`, how: { allow: NETWORK }, line: "misnamed", go: (at) => at.page.getByText("There is no such conversation.").waitFor() },
  house: { path: "/#/house", go: (at) => at.page.getByRole("link", { name: "deploy web" }).last().waitFor() },
  renaming: {
    path: "/#/house",
    async go(at) {
      await at.page.getByRole("button", { name: "Rename deploy web" }).click();
      await at.page.getByRole("textbox", { name: "Title" }).waitFor();
    },
  },
  deletion: {
    path: "/#/house",
    async go(at) {
      await at.page.getByRole("button", { name: "Delete deploy web" }).click();
      await at.page.getByRole("dialog").waitFor();
    },
  },
  unfound: {
    path: "/#/house",
    async go(at) {
      await at.page.getByRole("searchbox").fill("nothing is called so");
      await at.page.getByText("Nothing is called that.").waitFor();
    },
  },
  usage: { path: "/#/usage", go: (at) => at.page.getByRole("img", { name: /per day/ }).waitFor() },
  unused: {
    path: "/#/usage",
    async go(at) {
      await at.page.route("**/api/usage?*", async (route) => {
        const response = await route.fetch();
        const usage = await response.json();
        for (const day of usage.days) Object.assign(day, { input_tokens: 0, output_tokens: 0 });
        await route.fulfill({ response, json: usage });
      });
      await at.page.getByRole("button", { name: "7 days" }).click();
      await at.page.getByText("No tokens were used").waitFor();
    },
  },
  terminals: { path: "/#/terminals", go: (at) => at.page.getByText(/Nothing runs here|Choose a process/).waitFor() },
  terminal: {
    path: "/#/terminals",
    async go(at) {
      await at.newTerminal();
      await at.page.keyboard.type("echo here\n");
      await at.page.locator(".xterm-rows").getByText(/^here/).waitFor();
    },
  },
  shortcuts: {
    async go(at) {
      await at.page.getByRole("button", { name: "Keyboard shortcuts" }).click();
      await at.page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
    },
  },
  model: {
    async go(at) {
      await at.page.getByRole("button", { name: "Add a model" }).click();
      await at.page.getByRole("dialog").locator(".hljs-attr").first().waitFor();
    },
  },
  menu: {
    sizes: SIZES.slice(0, 1),
    how: { viewport: { width: 390, height: 844 } },
    async go(at) {
      await at.page.getByRole("button", { name: "Menu" }).click();
      await at.page.getByRole("dialog", { name: "Menu" }).getByRole("link", { name: "House" }).waitFor();
    },
  },
};

/** Goes to a screen. */
export async function goTo(name, browser, server) {
  const { path = "/", how, line = "open", go } = screens[name];
  const at = await (await browser.visit(server, { path, ...how })).begin();
  if (line) await at.connection(line);
  await go(at);
  return at;
}

/** A screen in each of its sizes, light and dark. */
export async function inEachLook(at, name, deed) {
  for (const [width, height] of screens[name].sizes ?? SIZES) {
    await at.page.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"]) {
      await at.page.emulateMedia({ colorScheme });
      // A page that is not in front may take a moment to notice its new size.
      await at.page.waitForFunction((width) => innerWidth === width, width, { polling: 100 });
      await deed(width, colorScheme);
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [folder, ...names] = process.argv.slice(2);
  if (!folder) throw new Error("say into which folder: node screens.mjs FOLDER [a name …]");
  mkdirSync(folder, { recursive: true });
  const server = await Server.start();
  const browser = await Browser.launch();
  try {
    await furnish(server);
    for (const name of names.length ? names : Object.keys(screens)) {
      const at = await goTo(name, browser, server);
      await inEachLook(at, name, (width, colours) => at.page.screenshot({ path: join(folder, `${name}-${width}-${colours}.png`) }));
      await at.end();
    }
  } finally {
    await browser.close();
    await server.stop();
  }
}
