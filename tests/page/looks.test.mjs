// Every screen, narrow and wide, light and dark: usable by everybody, and nothing sticks out.
import assert from "node:assert/strict";
import { test } from "node:test";
import { furnish, goTo, inEachLook, screens } from "./screens.mjs";
import { setUp } from "./stage.mjs";

const { server, browser, visit } = await setUp();
await furnish(server);

for (const name of Object.keys(screens)) {
  test(`${name} is for everybody`, async () => {
    const at = await goTo(name, browser, server);
    await inEachLook(at, name, async (width, colours) => {
      // Colours are the same at every width, so dark ones are looked at once.
      if (colours === "light" || width === 390) await at.isAccessible(`${name} at ${width}, ${colours},`);
      // A page that is not in front may take a moment to notice its new size.
      const fits = at.page.waitForFunction((width) => document.documentElement.scrollWidth <= width, width, { polling: 100 });
      assert.ok(await fits.catch(() => null), `${name} is wider than a screen of ${width}`);
    });
    await at.end();
  });
}

test("what one writes stands below what one reads", async () => {
  const at = await visit({ path: "/#/chat/looks" });
  await at.ended("deploy api");
  const sides = () => at.page.evaluate(() => ["form .box", "article"].map((selector) => {
    const { left, right } = [...document.querySelectorAll(selector)].at(-1).getBoundingClientRect();
    return [left, right];
  }));
  for (const width of [390, 1024, 1920]) {
    await at.page.setViewportSize({ width, height: 800 });
    await at.page.waitForFunction((width) => innerWidth === width, width, { polling: 100 });
    // The page arranges itself for a new size with its next picture.
    await at.settled(at.page.locator("form .box"));
    const [written, read] = await sides();
    assert.deepEqual(written, read, `at ${width}`);
  }
  await at.end();
});

test("the menu of a small screen leads to the other screens", async () => {
  const at = await goTo("menu", browser, server);
  await at.page.getByRole("dialog").getByRole("link", { name: "House" }).click();
  await at.page.getByRole("heading", { name: "House", level: 1 }).waitFor();
  await at.page.getByRole("dialog").waitFor({ state: "detached" });
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
