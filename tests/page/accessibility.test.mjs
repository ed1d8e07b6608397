// Every screen, narrow and wide, light and dark: it is accessible, and nothing is wider than the viewport.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createSessions, inEachLayout, openScreen, screens } from "./screens.mjs";
import { setUp } from "./setup.mjs";

const { server, browser, openPage } = await setUp();
await createSessions(server);

for (const name of Object.keys(screens)) {
  test(`the screen "${name}" is accessible and fits the viewport`, async () => {
    const tab = await openScreen(name, browser, server);
    await inEachLayout(tab, name, async (width, colours) => {
      // Colours are the same at every width, so dark colours are checked once.
      if (colours === "light" || width === 390) await tab.checkAccessibility(`${name} at ${width}, ${colours},`);
      // A page in the background may need a moment to notice its new size.
      const fits = tab.page.waitForFunction((width) => document.documentElement.scrollWidth <= width, width, { polling: 100 });
      assert.ok(await fits.catch(() => null), `${name} is wider than a viewport of ${width}`);
    });
    await tab.close();
  });
}

test("the message field is aligned with the conversation", async () => {
  const tab = await openPage({ path: "/#/chat/demo" });
  await tab.waitForTurn("deploy api");
  const edges = () => tab.page.evaluate(() => ["form .box", "article"].map((selector) => {
    const { left, right } = [...document.querySelectorAll(selector)].at(-1).getBoundingClientRect();
    return [left, right];
  }));
  for (const width of [390, 1024, 1920]) {
    await tab.page.setViewportSize({ width, height: 800 });
    await tab.page.waitForFunction((width) => innerWidth === width, width, { polling: 100 });
    // The browser lays the page out with the next animation frame.
    await tab.stableTop(tab.page.locator("form .box"));
    const [field, conversation] = await edges();
    assert.deepEqual(field, conversation, `at ${width}`);
  }
  await tab.close();
});

test("the menu of a narrow screen links to the other screens", async () => {
  const tab = await openScreen("menu", browser, server);
  await tab.page.getByRole("dialog").getByRole("link", { name: "Sessions" }).click();
  await tab.page.getByRole("heading", { name: "Sessions", level: 1 }).waitFor();
  await tab.page.getByRole("dialog").waitFor({ state: "detached" });
  await tab.close();
});

test("the chosen colours survive a reload", async () => {
  const tab = await openPage({ colorScheme: "light" });
  const background = () => tab.page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await background();
  await tab.page.getByRole("button", { name: "Colours: system" }).click();
  await tab.page.getByRole("button", { name: "Colours: light" }).click();
  await tab.page.getByRole("button", { name: "Colours: dark" }).waitFor();
  assert.notEqual(await background(), light);
  await tab.page.reload();
  await tab.page.getByRole("button", { name: "Colours: dark" }).waitFor();
  assert.notEqual(await background(), light);
  await tab.close();
});
