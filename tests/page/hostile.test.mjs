// What hostile texts can do to whoever reads them here: nothing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { HOSTILE } from "./server.mjs";
import { setUp } from "./stage.mjs";

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

const { server, visit } = await setUp();

async function isUnharmed(at) {
  assert.equal(await at.page.evaluate(() => window.broken), undefined);
  const strangers = await at.page.evaluate(() => {
    const links = [...document.querySelectorAll("a[href]")].filter(({ href }) => !/^(https?|mailto):/.test(href));
    const handlers = [...document.querySelectorAll("*")].filter((element) => [...element.attributes].some(({ name }) => name.startsWith("on")));
    const elements = [...document.querySelectorAll("script:not([src]), iframe, form[action], img[src=x], article style")];
    return [...links, ...handlers, ...elements].map((element) => element.outerHTML);
  });
  assert.deepEqual(strangers, []);
}

test("messages, answers, reasoning, subagents and titles are texts", async () => {
  const session = `hostile ${HOSTILE}`;
  await server.fill(session, TEXTS.map((text) => `echo ${text}`), "evil");
  const at = await visit({ path: `/#/chat/${encodeURIComponent(session)}` });
  await at.page.locator("article").last().waitFor();
  const scroller = at.page.getByRole("region", { name: "Conversation" });
  // From the end upwards, so that each turn was on the screen and unfolded.
  for (;;) {
    await at.page.evaluate(() => document.querySelectorAll(".timeline > button[aria-expanded=false]").forEach((fold) => fold.click()));
    await isUnharmed(at);
    const top = await scroller.evaluate((element) => {
      element.scrollTop -= 1500;
      return element.scrollTop;
    });
    if (top === 0) break;
  }
  await at.page.locator("article .who", { hasText: HOSTILE }).first().waitFor();
  await at.page.goto(`${server.address}/#/house`);
  await at.page.getByRole("list", { name: "Sessions" }).getByText("<script>").waitFor();
  await isUnharmed(at);
  await at.end();
});

test("what tools put out, and names of files and agents, are texts", async () => {
  const at = await visit();
  await at.page.getByLabel("Agent").selectOption("evil");
  await at.page.getByLabel("Agent").selectOption("local");
  const order = `!printf '%s' '<img src=x onerror="window.broken=1">'`;
  await at.say(order);
  const turn = await at.ended(order);
  await turn.getByRole("button", { expanded: false }).click();
  await turn.locator("pre.output").getByText("<img src=x").waitFor();
  const chooser = at.page.waitForEvent("filechooser");
  await at.page.getByRole("button", { name: "Add files" }).click();
  await (await chooser).setFiles([
    { name: `<img src=x onerror=window.broken='file'>.html`, mimeType: "text/html", buffer: Buffer.from("<script>window.broken='html'</script>") },
    { name: `"onload="window.broken='picture'.svg`, mimeType: "image/svg+xml", buffer: Buffer.from(`<svg xmlns="http://www.w3.org/2000/svg" onload="window.broken='svg'"/>`) },
  ]);
  await isUnharmed(at);
  await at.say("two files");
  await at.ended("two files");
  await isUnharmed(at);
  await at.end();
});
