// Hostile texts run no script and insert no element into the page.
import assert from "node:assert/strict";
import { test } from "node:test";
import { HOSTILE_NAME } from "./server.mjs";
import { setUp } from "./setup.mjs";

const TEXTS = [
  `<script>window.broken='script'</script>`,
  `<img src=x onerror="window.broken='img'">`,
  `<svg/onload="window.broken='svg'"><style>*{display:none}</style>`,
  `[click](javascript:window.broken='link') ![x](javascript:window.broken='picture')`,
  `<a href="data:text/html,<script>window.broken='data'</script>">x</a> <iframe srcdoc="<script>parent.broken='frame'</script>"></iframe>`,
  "```\"><img src=x onerror=window.broken='language'>\ncode\n```",
  `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.broken='mutation'&gt;">`,
  `**<details open ontoggle="window.broken='toggle'">** | <form action="https://example.invalid"><button>send</button></form>`,
  `{{constructor.constructor("window.broken='template'")()}} \${window.broken='literal'}`,
];

const { server, openPage } = await setUp();

async function checkUnharmed(tab) {
  assert.equal(await tab.page.evaluate(() => window.broken), undefined);
  const foreignElements = await tab.page.evaluate(() => {
    const links = [...document.querySelectorAll("a[href]")].filter(({ href }) => !/^(https?|mailto):/.test(href));
    const handlers = [...document.querySelectorAll("*")].filter((element) => [...element.attributes].some(({ name }) => name.startsWith("on")));
    const elements = [...document.querySelectorAll("script:not([src]), iframe, form[action], img[src=x], article style")];
    return [...links, ...handlers, ...elements].map((element) => element.outerHTML);
  });
  assert.deepEqual(foreignElements, []);
}

test("messages, answers, reasoning, subagents and titles are shown as text", async () => {
  const session = `hostile ${HOSTILE_NAME}`;
  await server.sendAll(session, TEXTS.map((text) => `echo ${text}`), "evil");
  const tab = await openPage({ path: `/#/chat/${encodeURIComponent(session)}` });
  await tab.page.locator("article").last().waitFor();
  const scroller = tab.page.getByRole("region", { name: "Conversation" });
  // Scrolls from the end upwards, so that every turn is drawn and unfolded once.
  for (;;) {
    await tab.page.evaluate(() => document.querySelectorAll(".timeline > button[aria-expanded=false]").forEach((button) => button.click()));
    await checkUnharmed(tab);
    const top = await scroller.evaluate((element) => {
      element.scrollTop -= 1500;
      return element.scrollTop;
    });
    if (top === 0) break;
  }
  await tab.page.locator("article .byline", { hasText: HOSTILE_NAME }).first().waitFor();
  await tab.page.goto(`${server.address}/#/sessions`);
  await tab.page.getByRole("list", { name: "Sessions" }).getByText("<script>").waitFor();
  await checkUnharmed(tab);
  await tab.close();
});

test("tool output and the names of files and agents are shown as text", async () => {
  const tab = await openPage();
  await tab.page.getByLabel("Agent").selectOption("evil");
  await tab.page.getByLabel("Agent").selectOption("local");
  const command = `!printf '%s' '<img src=x onerror="window.broken=1">'`;
  await tab.send(command);
  const turn = await tab.waitForTurn(command);
  await turn.getByRole("button", { expanded: false }).click();
  await turn.locator("pre.output").getByText("<img src=x").waitFor();
  const chooser = tab.page.waitForEvent("filechooser");
  await tab.page.getByRole("button", { name: "Add files" }).click();
  await (await chooser).setFiles([
    { name: `<img src=x onerror=window.broken='file'>.html`, mimeType: "text/html", buffer: Buffer.from("<script>window.broken='html'</script>") },
    { name: `"onload="window.broken='picture'.svg`, mimeType: "image/svg+xml", buffer: Buffer.from(`<svg xmlns="http://www.w3.org/2000/svg" onload="window.broken='svg'"/>`) },
  ]);
  await checkUnharmed(tab);
  await tab.send("two files");
  await tab.waitForTurn("two files");
  await checkUnharmed(tab);
  await tab.close();
});
