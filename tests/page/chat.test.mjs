// The chat: answers, pickers, stopping, queueing, failing, and the timeline of a run.
import assert from "node:assert/strict";
import { test } from "node:test";
import { PATIENCE, until } from "./server.mjs";
import { setUp } from "./stage.mjs";

const { server, browser, visit } = await setUp();

test("an answer is markdown with code that can be copied", async () => {
  const at = await visit();
  await at.page.getByLabel("Agent").selectOption("demo");
  await at.say("deploy web");
  const turn = await at.ended("deploy web");
  assert.equal(await turn.locator("strong").innerText(), "web");
  assert.equal(await turn.locator("table td").first().innerText(), "build");
  await turn.locator("code .hljs-keyword").first().waitFor();
  // It says so for a moment only.
  await Promise.all([turn.getByRole("button", { name: "Copied" }).waitFor(), turn.getByRole("button", { name: "Copy", exact: true }).click()]);
  assert.equal(await at.page.evaluate(() => navigator.clipboard.readText()), 'fn main() { println!("web"); }');
  await at.end();
});

test("links open beside the page, what scrolls is reached by keys, and a list counts from where it begins", async () => {
  await server.fill("attributes", ["echo [away](https://a.example)\n\n7. seven\n8. eight\n\n```\ncode\n```\n\n| a |\n|---|\n| 1 |"], "demo");
  const at = await visit({ path: "/#/chat/attributes" });
  const answer = at.page.locator("article .markdown").first();
  const link = answer.getByRole("link", { name: "away" });
  assert.deepEqual([await link.getAttribute("target"), await link.getAttribute("rel")], ["_blank", "noopener noreferrer"]);
  assert.equal(await answer.locator("ol").getAttribute("start"), "7");
  for (const selector of ["pre", ".table"]) assert.equal(await answer.locator(selector).getAttribute("tabindex"), "0");
  await at.end();
});

test("a wide table is scrolled on a small screen, and its words stay whole", async () => {
  const line = (cell) => `| ${Array(8).fill(cell).join(" | ")} |`;
  await server.fill("wide", [`echo ${line("unbroken")}\n${line("---")}\n${line("unbroken")}`], "demo");
  const at = await visit({ path: "/#/chat/wide", viewport: { width: 360, height: 740 } });
  const table = at.page.locator("article .markdown .table").first();
  await table.waitFor();
  const { isScrolled, height, line: lineHeight } = await table.evaluate((element) => {
    const cell = element.querySelector("td");
    const words = document.createRange();
    words.selectNodeContents(cell);
    return { isScrolled: element.scrollWidth > element.clientWidth, height: words.getBoundingClientRect().height, line: parseFloat(getComputedStyle(cell).lineHeight) };
  });
  assert.equal(isScrolled, true);
  assert.ok(height <= lineHeight, `a word of ${height} px is on more than one line of ${lineHeight} px`);
  assert.equal(await at.page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  await at.end();
});

test("a cell without a place to break stays in its column", async () => {
  await server.fill("cell", [`echo | a | b |\n|---|---|\n| ${"x".repeat(300)} | next |`], "demo");
  const at = await visit({ path: "/#/chat/cell" });
  const cell = at.page.locator("article .markdown td").first();
  await cell.waitFor();
  const isWithin = await cell.evaluate((element) => {
    const words = document.createRange();
    words.selectNodeContents(element);
    return words.getBoundingClientRect().right <= element.getBoundingClientRect().right;
  });
  assert.equal(isWithin, true);
  await at.end();
});

test("a link finds its address in another part of the answer", async () => {
  await server.fill("references", ["echo See [the page][1].\n\nSomething else.\n\n[1]: https://a.example/page"], "demo");
  const at = await visit({ path: "/#/chat/references" });
  const answer = at.page.locator("article .markdown").first();
  assert.equal(await answer.getByRole("link", { name: "the page" }).getAttribute("href"), "https://a.example/page");
  await at.end();
});

test("a conversation can be left while it scrolls", async () => {
  await server.fill("scrolled", ["/say something"]);
  const at = await visit({ path: "/#/chat/scrolled" });
  await at.ended("/say something");
  const scroller = await at.page.getByRole("region", { name: "Conversation" }).elementHandle();
  await at.page.getByRole("link", { name: "House", exact: true }).click();
  await at.page.getByRole("searchbox").waitFor();
  // A browser tells of a scroll with the next picture, when the element may be gone.
  await scroller.evaluate((element) => element.dispatchEvent(new Event("scroll")));
  await at.end();
});

test("a text that is plain is shown letter by letter, and scrolls sideways", async () => {
  const at = await browser.visit(server, { path: "/#/chat/plain" });
  const text = `total 4\n# drwx  *two*   <b>spaces</b>\n${"long ".repeat(100)}`;
  await server.fill("plain", ["/say something"]);
  await at.page.route(/\/events\?/, async (route) => {
    const answer = await route.fetch();
    const page = await answer.json();
    for (const { event_type: type, data } of page.events) if (type === "message.completed") Object.assign(data, { text, format: "plain" });
    await route.fulfill({ response: answer, json: page });
  });
  await at.begin();
  const output = (await at.ended("/say something")).getByRole("group", { name: "Output" });
  assert.equal(await output.evaluate((element) => element.textContent), text);
  assert.equal(await output.locator("*").count(), 0);
  assert.equal(await output.evaluate((element) => element.scrollWidth > element.clientWidth), true);
  assert.equal(await at.page.locator("article .markdown").count(), 0);
  await at.end();
});

test("a link without words is called by its address, and no heading skips a level", async () => {
  const odd = "###### Deep\n\n# High\n\n#\n\n[](https://a.example) ![](https://b.example) [![](https://c.example)](https://d.example) ![]()\n\n| | b |\n|---|---|\n| 1 | 2 |";
  await server.fill("odd", [`echo ${odd}`], "demo");
  const at = await visit({ path: "/#/chat/odd" });
  const answer = at.page.locator("article .markdown").first();
  await answer.waitFor();
  assert.deepEqual(await answer.getByRole("link").allInnerTexts(), ["https://a.example", "https://b.example", "https://c.example"]);
  assert.equal(await answer.getByRole("link").last().getAttribute("href"), "https://d.example");
  assert.deepEqual(await answer.getByRole("heading", { level: 3 }).allInnerTexts(), ["Deep", "High"]);
  assert.equal(await answer.getByRole("heading").count(), 2);
  assert.equal(await answer.locator("th").count(), 1);
  await at.end();
});

test("the timeline is a tree that folds, with a picture of where the time went", async () => {
  const at = await visit();
  await at.page.getByLabel("Agent").selectOption("demo");
  await at.say("deploy api");
  const turn = await at.ended("deploy api");
  const line = turn.getByRole("button", { name: /^Worked for .* 1 tool · 1 subagent$/ });
  assert.equal(await line.getAttribute("aria-expanded"), "false");
  const place = await at.settled(line);
  await line.click();
  await turn.getByText("Checking api before anything is touched.").waitFor({ state: "attached" });
  await turn.getByText("command: echo building api; echo done").waitFor();
  assert.equal(await at.settled(line), place, "what is unfolded must not move away");
  await turn.getByText("building api\ndone", { exact: false }).first().waitFor();
  await turn.getByText("scout: Look at api").first().waitFor();
  await turn.getByText("`api.log` does not exist").first().waitFor();
  await turn.getByText("1,200 tokens in, 340 out, $0.005").waitFor();
  await turn.getByRole("img", { name: /Where the time went: .*shell .*read_file/ }).waitFor();
  await turn.locator("summary", { hasText: "scout" }).click();
  await turn.getByText("api.log` does not exist").first().waitFor({ state: "hidden" });
  await at.page.keyboard.press("Alt+o");
  await turn.locator("summary").first().waitFor({ state: "detached" });
  await at.end();
});

test("output of a tool is seen while it runs, and Esc stops it", async () => {
  const at = await visit();
  await at.say("!echo first; sleep 60; echo never");
  const turn = at.turn("!echo first; sleep 60; echo never");
  await turn.getByRole("button", { expanded: false }).click();
  await turn.locator("pre.output").getByText("first").waitFor();
  await at.page.keyboard.press("Escape");
  await at.ended("!echo first; sleep 60; echo never", "stopped");
  await turn.getByText("Stopped.").waitFor();
  await at.page.getByRole("status").getByText("Stopped.").waitFor({ state: "attached" });
  assert.equal(await turn.getByText("never", { exact: true }).count(), 0);
  await at.end();
});

test("the stop button stops, and what is stopped can be asked again", async () => {
  const at = await visit();
  await at.say("/wait 60");
  await at.page.getByRole("button", { name: "Stop" }).click();
  const turn = await at.ended("/wait 60", "stopped");
  await turn.getByRole("button", { name: "Ask again" }).click();
  await at.page.locator("article").nth(1).waitFor();
  await at.page.getByRole("button", { name: "Stop" }).click();
  await at.page.locator('article[data-status="stopped"]').nth(1).waitFor();
  await at.end();
});

test("messages wait while a run is active, and are answered in order", async () => {
  const at = await visit();
  await at.say("/wait 60");
  await at.page.locator('article[data-status="running"]').waitFor();
  await at.say("/say second");
  await at.say("/say third");
  await at.page.locator('article[data-status="queued"]').nth(1).waitFor();
  await at.turn("/say second").getByText("Queued").waitFor();
  await at.page.keyboard.press("Escape");
  await at.ended("/say third");
  assert.deepEqual(await at.page.locator("article .asked p:first-child").allInnerTexts(), ["/wait 60", "/say second", "/say third"]);
  await at.end();
});

test("a failure is told in words and can be tried again", async () => {
  const at = await visit();
  await at.page.getByLabel("Agent").selectOption("demo");
  await at.say("break");
  const turn = await at.ended("break", "failed");
  await turn.getByText("no such host").waitFor();
  await turn.getByText("NOT_FOUND").waitFor();
  await turn.getByRole("button", { name: "Try again" }).click();
  await at.page.locator('article[data-status="failed"]').nth(1).waitFor();
  await at.end();
});

test("a text grows at its end, and nothing above it moves", { timeout: 2 * PATIENCE }, async () => {
  const at = await visit();
  await at.say("/say hello");
  await at.ended("/say hello");
  // Looked at from its first picture on, however late a test hears of that.
  const watched = at.page.evaluate(async () => {
    let answer = null;
    while (!(answer = document.querySelector('article[data-status="running"] .answer'))) await new Promise(requestAnimationFrame);
    const scroller = document.querySelector('[aria-label="Conversation"]');
    const place = () => answer.getBoundingClientRect().top + scroller.scrollTop;
    const begin = place();
    const seen = new Set();
    while (document.querySelector('article[data-status="running"]')) {
      await new Promise(requestAnimationFrame);
      seen.add(Math.round(place() - begin));
    }
    return [...seen];
  });
  await at.say("/wait 3");
  assert.deepEqual(await watched, [0]);
  await at.end();
});

test("the last words stay in sight when something below takes room", async () => {
  await server.fill("room", Array.from({ length: 12 }, (_, index) => `/say line ${index}`));
  const at = await visit({ path: "/#/chat/room" });
  await at.ended("/say line 11");
  const gap = () => at.page.getByRole("region", { name: "Conversation" }).evaluate(({ scrollHeight, scrollTop, clientHeight }) => Math.round(scrollHeight - scrollTop - clientHeight));
  await until("the end", async () => (await gap()) <= 1);
  await at.field.fill("a\nb\nc\nd\ne\nf\ng\nh");
  await at.page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  assert.ok((await gap()) <= 1);
  assert.equal(await at.page.getByRole("button", { name: "To the end" }).count(), 0);
  await at.end();
});

test("who is at the end stays there while a draft grows and shrinks, and while the window does", async () => {
  await server.fill("drafted", Array.from({ length: 12 }, (_, index) => `/say line ${index}`));
  const at = await visit({ path: "/#/chat/drafted" });
  await at.ended("/say line 11");
  const scroller = at.page.getByRole("region", { name: "Conversation" });
  const gap = () => scroller.evaluate(({ scrollHeight, scrollTop, clientHeight }) => Math.round(scrollHeight - scrollTop - clientHeight));
  await until("the end", async () => (await gap()) <= 1);
  const isAtEnd = async (when) => {
    // A window that was resized is laid out whenever the browser gets to it.
    await until(`the end ${when}`, async () => (await gap()) <= 1);
    assert.equal(await at.page.getByRole("button", { name: "To the end" }).count(), 0);
  };
  const height = async () => (await at.field.boundingBox()).height;
  const low = await height();
  await at.field.focus();
  for (let line = 1; line <= 7; line++) {
    await at.page.keyboard.type(`line ${line}`);
    await isAtEnd(`after line ${line}`);
    await at.page.keyboard.press("Shift+Enter");
    await isAtEnd(`below line ${line}`);
  }
  // All of it is seen: the field is as high as its text, also where the text is broken anew.
  const isWhole = () => at.field.evaluate(({ scrollHeight, clientHeight }) => scrollHeight <= clientHeight);
  assert.equal(await isWhole(), true);
  await at.field.fill("many words ".repeat(30));
  await at.page.setViewportSize({ width: 700, height: 768 });
  await isAtEnd("in a narrow window");
  assert.equal(await isWhole(), true);
  for (const text of ["long ".repeat(5_000), "a\nb\nc\nd\ne", "a\nb", ""]) {
    await at.field.fill(text);
    await isAtEnd(`with ${text.length} letters`);
  }
  assert.equal(await height(), low);
  // The conversation scrolls in the moment in which a keyboard takes room.
  await scroller.evaluate((element) => {
    element.scrollTop -= 2;
    document.querySelector("main").style.height = "400px";
  });
  await isAtEnd("above a keyboard");
  await at.end();
});

test("a reload shows the conversation again, and the next visit opens it", async () => {
  const at = await visit();
  await at.say("/say remember me");
  await at.ended("/say remember me");
  await at.page.reload();
  await at.ended("/say remember me");
  const next = await at.another("/");
  await next.ended("/say remember me");
  await at.end();
});

test("a conversation has an address of its own from the beginning: Back and a reload lead to it", async () => {
  const at = await visit();
  await at.say("/say first of two");
  await at.ended("/say first of two");
  const hash = (of = at) => new URL(of.page.url()).hash;
  const first = hash();
  assert.match(first, /^#\/chat\/./);
  await at.page.getByRole("button", { name: "New chat" }).click();
  await at.page.getByRole("heading", { name: "New chat", level: 1 }).waitFor();
  await at.say("/say second of two");
  await at.ended("/say second of two");
  const second = hash();
  assert.notEqual(second, first);
  await at.page.goBack();
  await at.ended("/say first of two");
  assert.equal(hash(), first);
  // The other was used last, and is what a visit without an address opens; a reload stays here.
  await at.page.reload();
  await at.ended("/say first of two");
  assert.equal(await at.turn("/say second of two").count(), 0);
  const next = await at.another("/");
  await next.ended("/say second of two");
  assert.equal(hash(next), second);
  // An address that leads nowhere is as none.
  for (const path of ["/#/zzz", "/#/chat/"]) {
    await next.page.goto(server.address + path);
    await next.page.waitForURL((url) => url.hash === second);
    await next.ended("/say second of two");
  }
  await next.page.goto(`${server.address}/#/house/`);
  await next.page.waitForURL((url) => url.hash === "#/house");
  assert.deepEqual(next.complaints, []);
  await at.end();
});

test("keys reach everything", async () => {
  const at = await visit();
  await at.say("/say one");
  await at.ended("/say one");
  await at.field.press("ArrowUp");
  assert.equal(await at.field.inputValue(), "/say one");
  await at.field.fill("a");
  await at.field.press("Shift+Enter");
  assert.equal(await at.field.inputValue(), "a\n");
  await at.page.getByRole("region", { name: "Conversation" }).focus();
  await at.page.keyboard.press("?");
  await at.page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await at.page.keyboard.press("Escape");
  await at.page.getByRole("dialog").waitFor({ state: "detached" });
  await at.page.keyboard.press("/");
  assert.equal(await at.page.evaluate(() => document.activeElement.id), "message");
  await at.page.keyboard.press("Alt+2");
  await at.page.getByRole("heading", { name: "House", level: 1 }).waitFor();
  await at.page.keyboard.press("Control+k");
  await at.page.locator("#search:focus").waitFor();
  await at.page.keyboard.press("Alt+n");
  await at.page.getByRole("heading", { name: "New chat", level: 1 }).waitFor();
  await at.page.locator("#message:focus").waitFor();
  await at.end();
});
