// A server that asks its own user for the token: the question, the one-time link, and the cookie that outlasts a reload.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { Server, until } from "./server.mjs";
import { setUp } from "./stage.mjs";

const STRICT = { more: '[serve]\nallow_local = "token"\n' };
const { server, browser, visit } = await setUp(STRICT);

/** The token, as the command line prints it. */
const token = (of = server) => of.run("token");

/** What the browser keeps, for scripts and for itself. */
async function kept(at) {
  const forScripts = await at.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  return { forScripts, cookies: await at.page.context().cookies() };
}

test("the token is asked for, a wrong one is refused, and the right one lasts over a reload", async () => {
  const at = await visit({ allow: NETWORK });
  const field = at.page.getByLabel("Token");
  await field.waitFor();
  await at.page.getByText("parlor token").waitFor();
  await at.isAccessible("the question for the token");
  await field.fill("not-the-token");
  await field.press("Enter");
  await at.page.getByRole("alert").getByText("does not take this token").waitFor();
  assert.deepEqual((await kept(at)).cookies, []);
  const right = await token();
  await field.fill(right);
  await field.press("Enter");
  await at.say("/say let in");
  await at.ended("/say let in");
  const { forScripts, cookies } = await kept(at);
  const [cookie, ...others] = cookies;
  assert.deepEqual(others, []);
  assert.equal(cookie.name, `parlor-${new URL(server.address).port}`);
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, "Strict", "/"]);
  assert.ok(cookie.expires > Date.now() / 1000 && cookie.expires < Date.now() / 1000 + 31 * 86_400);
  for (const secret of [right, cookie.value]) assert.equal(forScripts.includes(secret), false);
  await at.page.reload();
  await at.ended("/say let in");
  await at.say("/say still here");
  await at.ended("/say still here");
  // Another window of the same browser is let in as well.
  const other = await at.page.context().newPage();
  await other.goto(server.address);
  await other.getByRole("link", { name: "House", exact: true }).waitFor();
  await other.close();
  await at.end();
});

test("a one-time link lets in, also after a reload, until there is another token", async (t) => {
  const printed = await Server.start({ isOnTerminal: true, ...STRICT });
  t.after(() => printed.stop());
  const code = await until("the link", () => printed.said.match(/#code=([\w-]+)/)?.[1]);
  const at = await (await browser.visit(printed, { path: `/#code=${code}`, allow: NETWORK })).begin();
  await at.say("/say by the link");
  await at.ended("/say by the link");
  await at.page.reload();
  await at.ended("/say by the link");
  await printed.run("token", "--rotate");
  await at.page.reload();
  const field = at.page.getByLabel("Token");
  await field.fill(await token(printed));
  await field.press("Enter");
  await at.say("/say by the token");
  await at.ended("/say by the token");
  await at.end();
});

test("a token that an older page has kept is exchanged for a cookie", async () => {
  const at = await browser.visit(server, {});
  await at.page.addInitScript((old) => {
    if (sessionStorage.getItem("seen")) return;
    sessionStorage.setItem("seen", "1");
    localStorage.setItem("parlor.token", old);
  }, await token());
  await at.begin();
  await at.say("/say from before");
  await at.ended("/say from before");
  assert.equal((await kept(at)).forScripts.includes(await token()), false);
  await at.page.reload();
  await at.ended("/say from before");
  await at.end();
});

test("a page of another port with the cookie gets nothing", async (t) => {
  const evil = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<h1>hello</h1>"));
  await new Promise((resolve) => evil.listen(0, "127.0.0.1", resolve));
  t.after(() => evil.close());
  const at = await visit({ allow: NETWORK });
  await at.page.getByLabel("Token").fill(await token());
  await at.page.getByLabel("Token").press("Enter");
  await at.say("/say mine");
  await at.ended("/say mine");
  const before = await token();
  const lured = await at.page.context().newPage();
  await lured.goto(`http://127.0.0.1:${evil.address().port}/`);
  // A browser sends such requests, with the cookie: the host is the same. The answers it keeps to itself.
  await lured.evaluate(async (address) => {
    for (const path of ["/api/supr/token", "/api/supr/setup"]) {
      await fetch(address + path, { method: "POST", mode: "no-cors", credentials: "include" }).catch(() => undefined);
    }
  }, server.address);
  assert.equal(await token(), before);
  await lured.close();
  await at.end();
});
