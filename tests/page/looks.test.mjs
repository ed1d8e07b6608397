// Every screen, narrow and wide, light and dark: usable by everybody, and nothing sticks out.
// With PICTURES=folder each of them is also kept as a picture.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { setUp } from "./stage.mjs";

const SIZES = [[390, 844], [1024, 768], [1920, 1080]];
const pictures = process.env.PICTURES;

const { server, visit } = await setUp();
await server.fill("looks", ["deploy web", "break", "deploy api"], "demo");
await server.fill("other", ["/say How are you?", "!uname -s"]);

async function look(at, name, sizes = SIZES) {
  for (const [width, height] of sizes) {
    await at.page.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"]) {
      await at.page.emulateMedia({ colorScheme });
      await at.isAccessible(`${name} at ${width}, ${colorScheme},`);
      // A page that is not in front may take a moment to notice its new size.
      const fits = (width) => document.documentElement.scrollWidth <= width;
      const isSeen = await at.page.waitForFunction(fits, width, { polling: 100 }).catch(() => null);
      assert.ok(isSeen, `${name} is wider than a screen of ${width}`);
      if (pictures) await at.page.screenshot({ path: join(pictures, `${name}-${width}-${colorScheme}.png`) });
    }
  }
}

const screens = {
  async welcome(at) {
    await at.page.getByText("Good to see you.").waitFor();
  },
  async chat(at) {
    await at.page.goto(`${server.address}/#/chat/looks`);
    const turn = await at.ended("deploy api");
    await turn.locator(".hljs-keyword").first().waitFor();
  },
  async timeline(at) {
    await at.page.goto(`${server.address}/#/chat/looks`);
    const turn = await at.ended("deploy api");
    await turn.getByRole("button", { name: /^Worked/ }).click();
    await turn.getByRole("img", { name: /Where the time went/ }).waitFor();
  },
  async house(at) {
    await at.page.goto(`${server.address}/#/house`);
    await at.page.getByRole("link", { name: "deploy web" }).last().waitFor();
  },
  async usage(at) {
    await at.page.goto(`${server.address}/#/usage`);
    await at.page.getByRole("img", { name: /per day/ }).waitFor();
  },
  async terminals(at) {
    await at.page.goto(`${server.address}/#/terminals`);
    await at.page.getByText("Nothing runs here.").waitFor();
  },
  async terminal(at) {
    await at.page.goto(`${server.address}/#/terminals`);
    await at.page.getByRole("button", { name: "New terminal" }).click();
    await at.page.locator(".xterm-helper-textarea:focus").waitFor();
    await at.page.keyboard.type("echo here\n");
    await at.page.locator(".xterm-rows").getByText(/^here/).waitFor();
  },
  async elsewhere(at) {
    await at.page.goto(`${server.address}/#/chat/other`);
    await at.ended("!uname -s");
    await (await at.another("/#/chat/other")).connection("open");
    await at.connection("elsewhere");
  },
  async shortcuts(at) {
    await at.page.getByRole("button", { name: "Keyboard shortcuts" }).click();
    await at.page.getByRole("dialog").waitFor();
  },
  async deletion(at) {
    await at.page.goto(`${server.address}/#/house`);
    await at.page.getByRole("button", { name: "Delete deploy web" }).click();
    await at.page.getByRole("dialog").waitFor();
  },
};

for (const [name, go] of Object.entries(screens)) {
  test(`${name} is for everybody`, async () => {
    const at = await visit();
    await at.connection("open");
    await go(at);
    await look(at, name);
    await at.end();
  });
}

test("the tour is for everybody", async () => {
  const at = await visit({ isToured: false });
  await at.page.getByRole("region", { name: "Tour" }).waitFor();
  await look(at, "tour");
  await at.end();
});

test("the door is for everybody", async () => {
  const at = await visit({ allow: NETWORK, extraHTTPHeaders: { "X-Forwarded-For": "203.0.113.9" } });
  await at.page.getByLabel("Token").waitFor();
  await look(at, "door");
  await at.end();
});

test("the menu of a small screen is for everybody", async () => {
  const at = await visit({ viewport: { width: 390, height: 844 } });
  await at.page.getByRole("button", { name: "Menu" }).click();
  await at.page.getByRole("dialog", { name: "Menu" }).getByRole("link", { name: "House" }).waitFor();
  await look(at, "menu", SIZES.slice(0, 1));
  await at.page.getByRole("dialog").getByRole("link", { name: "House" }).click();
  await at.page.getByRole("heading", { name: "House", level: 1 }).waitFor();
  assert.equal(await at.page.getByRole("dialog").count(), 0);
  await at.end();
});

test("colours can be chosen, and stay chosen", async () => {
  const at = await visit({ colorScheme: "light" });
  const paper = () => at.page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await paper();
  await at.page.getByRole("button", { name: "Colours: as the system" }).click();
  await at.page.getByRole("button", { name: "Colours: light" }).click();
  await at.page.getByRole("button", { name: "Colours: dark" }).waitFor();
  assert.notEqual(await paper(), light);
  await at.page.reload();
  await at.page.getByRole("button", { name: "Colours: dark" }).waitFor();
  assert.notEqual(await paper(), light);
  await at.end();
});
