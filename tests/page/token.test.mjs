// A server that requires the token even from its own user: the form, the one-time link, and the cookie.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { Server, waitUntil } from "./server.mjs";
import { setUp } from "./setup.mjs";

const STRICT = { extraSettings: '[serve]\nallow_local = "token"\n' };
const { server, browser, openPage } = await setUp(STRICT);

/** The token, as `parlor token` prints it. */
const token = (of = server) => of.run("token");

/** What the browser stores: the part that scripts can read, and the cookies. */
async function storedData(tab) {
  const forScripts = await tab.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  return { forScripts, cookies: await tab.page.context().cookies() };
}

test("the page asks for the token, rejects a wrong one, and keeps access after a reload", async () => {
  const tab = await openPage({ allow: NETWORK });
  const field = tab.page.getByLabel("Token");
  await field.waitFor();
  await tab.page.getByText("parlor token").waitFor();
  await tab.checkAccessibility("the token form");
  await field.fill("not-the-token");
  await field.press("Enter");
  await tab.page.getByRole("alert").getByText("does not accept this token").waitFor();
  assert.deepEqual((await storedData(tab)).cookies, []);
  const right = await token();
  await field.fill(right);
  await field.press("Enter");
  await tab.send("/say let in");
  await tab.waitForTurn("/say let in");
  const { forScripts, cookies } = await storedData(tab);
  const [cookie, ...others] = cookies;
  assert.deepEqual(others, []);
  assert.equal(cookie.name, `parlor-${new URL(server.address).port}`);
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, "Strict", "/"]);
  assert.ok(cookie.expires > Date.now() / 1000 && cookie.expires < Date.now() / 1000 + 31 * 86_400);
  for (const secret of [right, cookie.value]) assert.equal(forScripts.includes(secret), false);
  await tab.page.reload();
  await tab.waitForTurn("/say let in");
  await tab.send("/say still here");
  await tab.waitForTurn("/say still here");
  // Another tab of the same browser has access too.
  const other = await tab.page.context().newPage();
  await other.goto(server.address);
  await other.getByRole("link", { name: "Sessions", exact: true }).waitFor();
  await other.close();
  await tab.close();
});

test("a one-time link gives access, also after a reload, until the token is rotated", async (t) => {
  const printed = await Server.start({ isOnTerminal: true, ...STRICT });
  t.after(() => printed.stop());
  const code = await waitUntil("the one-time link", () => printed.output.match(/#code=([\w-]+)/)?.[1]);
  const tab = await (await browser.newPage(printed, { path: `/#code=${code}`, allow: NETWORK })).open();
  await tab.send("/say by the link");
  await tab.waitForTurn("/say by the link");
  await tab.page.reload();
  await tab.waitForTurn("/say by the link");
  await printed.run("token", "--rotate");
  await tab.page.reload();
  const field = tab.page.getByLabel("Token");
  await field.fill(await token(printed));
  await field.press("Enter");
  await tab.send("/say by the token");
  await tab.waitForTurn("/say by the token");
  await tab.close();
});

test("a token stored by an older page is exchanged for a cookie", async () => {
  const tab = await browser.newPage(server, {});
  await tab.page.addInitScript((old) => {
    if (sessionStorage.getItem("seen")) return;
    sessionStorage.setItem("seen", "1");
    localStorage.setItem("parlor.token", old);
  }, await token());
  await tab.open();
  await tab.send("/say from before");
  await tab.waitForTurn("/say from before");
  assert.equal((await storedData(tab)).forScripts.includes(await token()), false);
  await tab.page.reload();
  await tab.waitForTurn("/say from before");
  await tab.close();
});

test("a page on another port cannot use the cookie", async (t) => {
  const evil = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<h1>hello</h1>"));
  await new Promise((resolve) => evil.listen(0, "127.0.0.1", resolve));
  t.after(() => evil.close());
  const tab = await openPage({ allow: NETWORK });
  await tab.page.getByLabel("Token").fill(await token());
  await tab.page.getByLabel("Token").press("Enter");
  await tab.send("/say mine");
  await tab.waitForTurn("/say mine");
  const before = await token();
  const attacker = await tab.page.context().newPage();
  await attacker.goto(`http://127.0.0.1:${evil.address().port}/`);
  // The browser sends these requests with the cookie, because the host is the same.
  await attacker.evaluate(async (address) => {
    for (const path of ["/api/supr/token", "/api/supr/setup"]) {
      await fetch(address + path, { method: "POST", mode: "no-cors", credentials: "include" }).catch(() => undefined);
    }
  }, server.address);
  assert.equal(await token(), before);
  await attacker.close();
  await tab.close();
});
