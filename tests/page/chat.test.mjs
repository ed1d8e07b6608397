// The chat: answers, stopping, queueing, failures, scrolling, shortcuts, and the steps of a run.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TIMEOUT_MS, waitUntil } from "./server.mjs";
import { setUp } from "./setup.mjs";

const { server, browser, openPage } = await setUp();

test("an answer is shown as markdown, and its code can be copied", async () => {
  const tab = await openPage();
  await tab.page.getByLabel("Agent").selectOption("demo");
  await tab.send("deploy web");
  const turn = await tab.waitForTurn("deploy web");
  assert.equal(await turn.locator("strong").innerText(), "web");
  assert.equal(await turn.locator("table td").first().innerText(), "build");
  await turn.locator("code .hljs-keyword").first().waitFor();
  // The button says "Copied" only for a moment.
  await Promise.all([turn.getByRole("button", { name: "Copied" }).waitFor(), turn.getByRole("button", { name: "Copy", exact: true }).click()]);
  assert.equal(await tab.page.evaluate(() => navigator.clipboard.readText()), 'fn main() { println!("web"); }');
  await tab.close();
});

test("links open in a new tab, scrolling blocks are focusable, and a list keeps its first number", async () => {
  await server.sendAll("attributes", ["echo [away](https://a.example)\n\n7. seven\n8. eight\n\n```\ncode\n```\n\n| a |\n|---|\n| 1 |"], "demo");
  const tab = await openPage({ path: "/#/chat/attributes" });
  const answer = tab.page.locator("article .markdown").first();
  const link = answer.getByRole("link", { name: "away" });
  assert.deepEqual([await link.getAttribute("target"), await link.getAttribute("rel")], ["_blank", "noopener noreferrer"]);
  assert.equal(await answer.locator("ol").getAttribute("start"), "7");
  for (const selector of ["pre", ".table"]) assert.equal(await answer.locator(selector).getAttribute("tabindex"), "0");
  await tab.close();
});

test("a wide table scrolls on a small screen, and its words are not broken", async () => {
  const tableRow = (cell) => `| ${Array(8).fill(cell).join(" | ")} |`;
  await server.sendAll("wide", [`echo ${tableRow("unbroken")}\n${tableRow("---")}\n${tableRow("unbroken")}`], "demo");
  const tab = await openPage({ path: "/#/chat/wide", viewport: { width: 360, height: 740 } });
  const table = tab.page.locator("article .markdown .table").first();
  await table.waitFor();
  const { isScrolling, height, lineHeight } = await table.evaluate((element) => {
    const cell = element.querySelector("td");
    const range = document.createRange();
    range.selectNodeContents(cell);
    return { isScrolling: element.scrollWidth > element.clientWidth, height: range.getBoundingClientRect().height, lineHeight: parseFloat(getComputedStyle(cell).lineHeight) };
  });
  assert.equal(isScrolling, true);
  assert.ok(height <= lineHeight, `a word has ${height} px, more than one line of ${lineHeight} px`);
  assert.equal(await tab.page.evaluate(() => document.documentElement.scrollWidth > innerWidth), false);
  await tab.close();
});

test("a long word in a table cell does not overflow its column", async () => {
  await server.sendAll("cell", [`echo | a | b |\n|---|---|\n| ${"x".repeat(300)} | next |`], "demo");
  const tab = await openPage({ path: "/#/chat/cell" });
  const cell = tab.page.locator("article .markdown td").first();
  await cell.waitFor();
  const isInside = await cell.evaluate((element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return range.getBoundingClientRect().right <= element.getBoundingClientRect().right;
  });
  assert.equal(isInside, true);
  await tab.close();
});

test("a reference link uses a definition in another block of the answer", async () => {
  await server.sendAll("references", ["echo See [the page][1].\n\nSomething else.\n\n[1]: https://a.example/page"], "demo");
  const tab = await openPage({ path: "/#/chat/references" });
  const answer = tab.page.locator("article .markdown").first();
  assert.equal(await answer.getByRole("link", { name: "the page" }).getAttribute("href"), "https://a.example/page");
  await tab.close();
});

test("a scroll event after the conversation was closed causes no error", async () => {
  await server.sendAll("scrolled", ["/say something"]);
  const tab = await openPage({ path: "/#/chat/scrolled" });
  await tab.waitForTurn("/say something");
  const scroller = await tab.page.getByRole("region", { name: "Conversation" }).elementHandle();
  await tab.page.getByRole("link", { name: "Sessions", exact: true }).click();
  await tab.page.getByRole("searchbox").waitFor();
  // The browser sends the scroll event with the next animation frame, when the element may already be removed.
  await scroller.evaluate((element) => element.dispatchEvent(new Event("scroll")));
  await tab.close();
});

test("plain text is shown unchanged, and scrolls sideways", async () => {
  const tab = await browser.newPage(server, { path: "/#/chat/plain" });
  const text = `total 4\n# drwx  *two*   <b>spaces</b>\n${"long ".repeat(100)}`;
  await server.sendAll("plain", ["/say something"]);
  await tab.page.route(/\/events\?/, async (route) => {
    const answer = await route.fetch();
    const page = await answer.json();
    for (const { event_type: type, data } of page.events) if (type === "message.completed") Object.assign(data, { text, format: "plain" });
    await route.fulfill({ response: answer, json: page });
  });
  await tab.open();
  const output = (await tab.waitForTurn("/say something")).getByRole("group", { name: "Output" });
  assert.equal(await output.evaluate((element) => element.textContent), text);
  assert.equal(await output.locator("*").count(), 0);
  assert.equal(await output.evaluate((element) => element.scrollWidth > element.clientWidth), true);
  assert.equal(await tab.page.locator("article .markdown").count(), 0);
  await tab.close();
});

test("a link without text shows its address, and no heading skips a level", async () => {
  const odd = "###### Deep\n\n# High\n\n#\n\n[](https://a.example) ![](https://b.example) [![](https://c.example)](https://d.example) ![]()\n\n| | b |\n|---|---|\n| 1 | 2 |";
  await server.sendAll("odd", [`echo ${odd}`], "demo");
  const tab = await openPage({ path: "/#/chat/odd" });
  const answer = tab.page.locator("article .markdown").first();
  await answer.waitFor();
  assert.deepEqual(await answer.getByRole("link").allInnerTexts(), ["https://a.example", "https://b.example", "https://c.example"]);
  assert.equal(await answer.getByRole("link").last().getAttribute("href"), "https://d.example");
  assert.deepEqual(await answer.getByRole("heading", { level: 3 }).allInnerTexts(), ["Deep", "High"]);
  assert.equal(await answer.getByRole("heading").count(), 2);
  assert.equal(await answer.locator("th").count(), 1);
  await tab.close();
});

test("the steps of a run unfold into a tree and a waterfall chart", async () => {
  const tab = await openPage();
  await tab.page.getByLabel("Agent").selectOption("demo");
  await tab.send("deploy api");
  const turn = await tab.waitForTurn("deploy api");
  const summary = turn.getByRole("button", { name: /^Worked for .* 1 tool · 1 subagent$/ });
  assert.equal(await summary.getAttribute("aria-expanded"), "false");
  const top = await tab.stableTop(summary);
  await summary.click();
  await turn.getByText("Checking api before anything is touched.").waitFor({ state: "attached" });
  await turn.getByText("command: echo building api; echo done").waitFor();
  assert.equal(await tab.stableTop(summary), top, "the line must not move when it unfolds");
  await turn.getByText("building api\ndone", { exact: false }).first().waitFor();
  await turn.getByText("scout: Look at api").first().waitFor();
  await turn.getByText("`api.log` does not exist").first().waitFor();
  await turn.getByText("1,200 tokens in, 340 out, $0.005").waitFor();
  await turn.getByRole("img", { name: /Duration of each step: .*shell .*read_file/ }).waitFor();
  await turn.locator("summary", { hasText: "scout" }).click();
  await turn.getByText("api.log` does not exist").first().waitFor({ state: "hidden" });
  await tab.page.keyboard.press("Alt+o");
  await turn.locator("summary").first().waitFor({ state: "detached" });
  await tab.close();
});

test("the output of a tool is shown while it runs, and Esc stops it", async () => {
  const tab = await openPage();
  await tab.send("!echo first; sleep 60; echo never");
  const turn = tab.turn("!echo first; sleep 60; echo never");
  await turn.getByRole("button", { expanded: false }).click();
  await turn.locator("pre.output").getByText("first").waitFor();
  await tab.page.keyboard.press("Escape");
  await tab.waitForTurn("!echo first; sleep 60; echo never", "stopped");
  await turn.getByText("Stopped.").waitFor();
  await tab.page.getByRole("status").getByText("Stopped.").waitFor({ state: "attached" });
  assert.equal(await turn.getByText("never", { exact: true }).count(), 0);
  await tab.close();
});

test("the stop button stops a run, and a stopped message can be sent again", async () => {
  const tab = await openPage();
  await tab.send("/wait 60");
  await tab.page.getByRole("button", { name: "Stop" }).click();
  const turn = await tab.waitForTurn("/wait 60", "stopped");
  await turn.getByRole("button", { name: "Run again" }).click();
  await tab.page.locator("article").nth(1).waitFor();
  await tab.page.getByRole("button", { name: "Stop" }).click();
  await tab.page.locator('article[data-status="stopped"]').nth(1).waitFor();
  await tab.close();
});

test("messages are queued while a run is active, and answered in order", async () => {
  const tab = await openPage();
  await tab.send("/wait 60");
  await tab.page.locator('article[data-status="running"]').waitFor();
  await tab.send("/say second");
  await tab.send("/say third");
  await tab.page.locator('article[data-status="queued"]').nth(1).waitFor();
  await tab.turn("/say second").getByText("Queued").waitFor();
  await tab.page.keyboard.press("Escape");
  await tab.waitForTurn("/say third");
  assert.deepEqual(await tab.page.locator("article .prompt p:first-child").allInnerTexts(), ["/wait 60", "/say second", "/say third"]);
  await tab.close();
});

test("a failure shows its reason, and the message can be sent again", async () => {
  const tab = await openPage();
  await tab.page.getByLabel("Agent").selectOption("demo");
  await tab.send("break");
  const turn = await tab.waitForTurn("break", "failed");
  await turn.getByText("no such host").waitFor();
  await turn.getByText("NOT_FOUND").waitFor();
  await turn.getByRole("button", { name: "Try again" }).click();
  await tab.page.locator('article[data-status="failed"]').nth(1).waitFor();
  await tab.close();
});

test("a growing answer does not move the text above it", { timeout: 2 * TIMEOUT_MS }, async () => {
  const tab = await openPage();
  await tab.send("/say hello");
  await tab.waitForTurn("/say hello");
  // Runs in the page, so that it sees the answer from the first animation frame on.
  const watched = tab.page.evaluate(async () => {
    let answer = null;
    while (!(answer = document.querySelector('article[data-status="running"] .answer'))) await new Promise(requestAnimationFrame);
    const scroller = document.querySelector('[aria-label="Conversation"]');
    const top = () => answer.getBoundingClientRect().top + scroller.scrollTop;
    const begin = top();
    const seen = new Set();
    while (document.querySelector('article[data-status="running"]')) {
      await new Promise(requestAnimationFrame);
      seen.add(Math.round(top() - begin));
    }
    return [...seen];
  });
  await tab.send("/wait 3");
  assert.deepEqual(await watched, [0]);
  await tab.close();
});

test("the last line stays visible when the message field grows", async () => {
  await server.sendAll("room", Array.from({ length: 12 }, (_, index) => `/say line ${index}`));
  const tab = await openPage({ path: "/#/chat/room" });
  await tab.waitForTurn("/say line 11");
  const gap = () => tab.page.getByRole("region", { name: "Conversation" }).evaluate(({ scrollHeight, scrollTop, clientHeight }) => Math.round(scrollHeight - scrollTop - clientHeight));
  await waitUntil("the end", async () => (await gap()) <= 1);
  await tab.messageField.fill("a\nb\nc\nd\ne\nf\ng\nh");
  await tab.page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  assert.ok((await gap()) <= 1);
  assert.equal(await tab.page.getByRole("button", { name: "Go to the end" }).count(), 0);
  await tab.close();
});

test("the view stays at the end while the draft or the window changes its size", async () => {
  await server.sendAll("drafted", Array.from({ length: 12 }, (_, index) => `/say line ${index}`));
  const tab = await openPage({ path: "/#/chat/drafted" });
  await tab.waitForTurn("/say line 11");
  const scroller = tab.page.getByRole("region", { name: "Conversation" });
  const gap = () => scroller.evaluate(({ scrollHeight, scrollTop, clientHeight }) => Math.round(scrollHeight - scrollTop - clientHeight));
  await waitUntil("the end", async () => (await gap()) <= 1);
  const isAtEnd = async (when) => {
    // The browser lays a resized window out some time later.
    await waitUntil(`the end ${when}`, async () => (await gap()) <= 1);
    assert.equal(await tab.page.getByRole("button", { name: "Go to the end" }).count(), 0);
  };
  const height = async () => (await tab.messageField.boundingBox()).height;
  const low = await height();
  await tab.messageField.focus();
  for (let line = 1; line <= 7; line++) {
    await tab.page.keyboard.type(`line ${line}`);
    await isAtEnd(`after line ${line}`);
    await tab.page.keyboard.press("Shift+Enter");
    await isAtEnd(`below line ${line}`);
  }
  // The field is as high as its text, also after the text wraps differently.
  const showsAll = () => tab.messageField.evaluate(({ scrollHeight, clientHeight }) => scrollHeight <= clientHeight);
  assert.equal(await showsAll(), true);
  await tab.messageField.fill("many words ".repeat(30));
  await tab.page.setViewportSize({ width: 700, height: 768 });
  await isAtEnd("in a narrow window");
  assert.equal(await showsAll(), true);
  for (const text of ["long ".repeat(5_000), "a\nb\nc\nd\ne", "a\nb", ""]) {
    await tab.messageField.fill(text);
    await isAtEnd(`with ${text.length} characters`);
  }
  assert.equal(await height(), low);
  // The conversation scrolls at the moment when an on-screen keyboard appears.
  await scroller.evaluate((element) => {
    element.scrollTop -= 2;
    document.querySelector("main").style.height = "400px";
  });
  await isAtEnd("above a keyboard");
  await tab.close();
});

test("a reload shows the conversation again, and the next tab opens it", async () => {
  const tab = await openPage();
  await tab.send("/say remember me");
  await tab.waitForTurn("/say remember me");
  await tab.page.reload();
  await tab.waitForTurn("/say remember me");
  const next = await tab.openTab("/");
  await next.waitForTurn("/say remember me");
  await tab.close();
});

test("a new conversation has its own address: Back and a reload lead to it", async () => {
  const tab = await openPage();
  await tab.send("/say first of two");
  await tab.waitForTurn("/say first of two");
  const hash = (of = tab) => new URL(of.page.url()).hash;
  const first = hash();
  assert.match(first, /^#\/chat\/./);
  await tab.page.getByRole("button", { name: "New chat" }).click();
  await tab.page.getByRole("heading", { name: "New chat", level: 1 }).waitFor();
  await tab.send("/say second of two");
  await tab.waitForTurn("/say second of two");
  const second = hash();
  assert.notEqual(second, first);
  await tab.page.goBack();
  await tab.waitForTurn("/say first of two");
  assert.equal(hash(), first);
  // A reload stays in this conversation; a tab without an address opens the one used last.
  await tab.page.reload();
  await tab.waitForTurn("/say first of two");
  assert.equal(await tab.turn("/say second of two").count(), 0);
  const next = await tab.openTab("/");
  await next.waitForTurn("/say second of two");
  assert.equal(hash(next), second);
  // An unknown address counts as no address.
  for (const path of ["/#/zzz", "/#/chat/"]) {
    await next.page.goto(server.address + path);
    await next.page.waitForURL((url) => url.hash === second);
    await next.waitForTurn("/say second of two");
  }
  // `#/house` is the old address of the sessions screen.
  for (const path of ["/#/sessions/", "/#/house"]) {
    await next.page.goto(server.address + path);
    await next.page.waitForURL((url) => url.hash === "#/sessions");
    await next.page.getByRole("heading", { name: "Sessions", level: 1 }).waitFor();
    await next.page.goto(`${server.address}/${second}`);
    await next.waitForTurn("/say second of two");
  }
  assert.deepEqual(next.consoleErrors, []);
  await tab.close();
});

test("keyboard shortcuts open every screen", async () => {
  const tab = await openPage();
  await tab.send("/say one");
  await tab.waitForTurn("/say one");
  await tab.messageField.press("ArrowUp");
  assert.equal(await tab.messageField.inputValue(), "/say one");
  await tab.messageField.fill("a");
  await tab.messageField.press("Shift+Enter");
  assert.equal(await tab.messageField.inputValue(), "a\n");
  const conversation = tab.page.getByRole("region", { name: "Conversation" });
  await conversation.focus();
  await tab.page.keyboard.press("?");
  await tab.page.getByRole("dialog", { name: "Keyboard shortcuts" }).waitFor();
  await tab.page.keyboard.press("Escape");
  await tab.page.getByRole("dialog").waitFor({ state: "detached" });
  // The dialog gives the focus back when it is gone, and the next key must not come before that.
  await conversation.and(tab.page.locator(":focus")).waitFor();
  await tab.page.keyboard.press("/");
  await tab.page.locator("#message:focus").waitFor();
  await tab.page.keyboard.press("Alt+2");
  await tab.page.getByRole("heading", { name: "Sessions", level: 1 }).waitFor();
  await tab.page.keyboard.press("Control+k");
  await tab.page.locator("#search:focus").waitFor();
  await tab.page.keyboard.press("Alt+n");
  await tab.page.getByRole("heading", { name: "New chat", level: 1 }).waitFor();
  await tab.page.locator("#message:focus").waitFor();
  await tab.close();
});
