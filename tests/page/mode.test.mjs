// The mode of a conversation: what the page says about each, and that a choice holds for the next run.
import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { SIZES } from "./screens.mjs";
import { setUp } from "./setup.mjs";

const extraSettings = `
[policy]
enforce_all = true
`;
// The sandbox has a /dev/shm of its own, so nothing in that of the machine can be a project.
const { server, openPage } = await setUp({ extraSettings, parent: tmpdir() });
const openDialog = async (tab) => {
  await tab.page.getByRole("button", { name: "Permissions" }).click();
  const dialog = tab.page.getByRole("dialog", { name: "What the agent may do" });
  await dialog.waitFor();
  return dialog;
};

test("the settings' mode is marked, another one holds from the next run on, and a reload shows it", async () => {
  await server.sendAll("modes", ["/say before"]);
  const tab = await openPage({ path: "/#/chat/modes" });
  await tab.send("!touch first && echo made");
  await (await tab.waitForTurn("!touch first && echo made")).locator(".answer").getByText("made").waitFor();
  let dialog = await openDialog(tab);
  const radio = (name) => dialog.getByRole("radio", { name: new RegExp(`^${name}`) });
  assert.ok(await radio("Workspace").isChecked());
  await dialog.getByText("changes nothing").waitFor();
  await dialog.getByText("reach only the hosts that a rule allows").waitFor();
  await dialog.getByText("everything that you can do").waitFor();
  await radio("Read only").check();
  await tab.page.getByText("Read only, from the next run on.").waitFor({ state: "attached" });
  await tab.page.keyboard.press("Escape");
  await tab.send("!touch second || echo refused");
  await (await tab.waitForTurn("!touch second || echo refused")).locator(".answer").getByText("refused").waitFor();
  await tab.page.reload();
  await tab.waitForConnection("open");
  dialog = await openDialog(tab);
  assert.ok(await radio("Read only").isChecked());
  // By keyboard, as any group of radio buttons.
  await radio("Read only").focus();
  await tab.page.keyboard.press("ArrowDown");
  await tab.page.getByText("Workspace, from the next run on.").waitFor({ state: "attached" });
  assert.deepEqual(tab.consoleErrors, []);
  await tab.close();
});

test("a refused choice is reported and not marked", async () => {
  await server.sendAll("refused", ["/say before"]);
  const tab = await openPage({ path: "/#/chat/refused", allow: /403/ });
  await tab.page.route("**/api/sessions/refused/mode", (route) => (route.request().method() === "PUT" ? route.fulfill({ status: 403, body: "clients may only read" }) : route.continue()));
  const dialog = await openDialog(tab);
  await dialog.getByRole("radio", { name: /^Full/ }).click();
  await dialog.getByRole("alert").getByText("The mode was not changed. clients may only read").waitFor();
  assert.ok(await dialog.getByRole("radio", { name: /^Workspace/ }).isChecked());
  await tab.close();
});

test("before the first message the settings decide", async () => {
  const tab = await openPage({ allow: /404/ });
  const dialog = await openDialog(tab);
  await dialog.getByText("This conversation begins with your first message.").waitFor();
  assert.equal(await dialog.getByRole("radio").count(), 0);
  await tab.close();
});

test("the dialog is accessible and fits the viewport", async () => {
  await server.sendAll("fits", ["/say before"]);
  const tab = await openPage({ path: "/#/chat/fits" });
  const dialog = await openDialog(tab);
  await dialog.getByRole("radio", { name: /^Full/ }).waitFor();
  for (const [width, height] of SIZES) {
    await tab.page.setViewportSize({ width, height });
    await tab.page.waitForFunction((width) => innerWidth === width && document.documentElement.scrollWidth <= width, width, { polling: 100 });
    if (process.env.SCREENSHOTS) await tab.page.screenshot({ path: `${process.env.SCREENSHOTS}/mode-${width}.png` });
  }
  for (const colorScheme of ["light", "dark"]) {
    await tab.page.emulateMedia({ colorScheme });
    await tab.checkAccessibility(`the mode of a conversation, ${colorScheme}`);
  }
  await tab.close();
});
