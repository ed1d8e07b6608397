// Files of a message: by button, paste and drop, with previews and the exact size limit.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { setUp } from "./setup.mjs";

const MAX_FILE_BYTES = 25 * 1024 * 1024;
const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==", "base64");

const { server, openPage } = await setUp();
/** Writes an image of any size: browsers ignore the bytes after its end. */
function writeImage(name, size) {
  const path = join(server.folder, name);
  writeFileSync(path, Buffer.concat([PNG, Buffer.alloc(size - PNG.length)]));
  return path;
}
const chosenFiles = (tab) => tab.page.getByRole("list", { name: "Files to send" }).getByRole("listitem");

async function chooseFiles(tab, ...files) {
  const chooser = tab.page.waitForEvent("filechooser");
  await tab.page.getByRole("button", { name: "Add files" }).click();
  await (await chooser).setFiles(files);
}

async function insertFile(tab, how, name, type, text) {
  await tab.messageField.waitFor();
  await tab.page.evaluate(
    ([how, name, type, text]) => {
      const data = new DataTransfer();
      data.items.add(new File([text], name, { type }));
      const field = document.getElementById("message");
      const event = how === "paste" ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }) : new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
      field.dispatchEvent(event);
    },
    [how, name, type, text],
  );
}

test("an image of 25 MiB is sent and shown, also after a reload", async () => {
  const tab = await openPage();
  await chooseFiles(tab, writeImage("large.png", MAX_FILE_BYTES));
  await chosenFiles(tab).getByText("25.0 MB").waitFor();
  await chosenFiles(tab).locator("img").waitFor();
  await tab.send("look at this");
  const turn = await tab.waitForTurn("look at this");
  const image = turn.getByRole("img", { name: "large.png" });
  await image.waitFor();
  assert.equal(await image.evaluate((element) => element.decode().then(() => element.naturalWidth)), 1);
  assert.equal(await chosenFiles(tab).count(), 0);
  await tab.page.reload();
  await (await tab.waitForTurn("look at this")).getByRole("img", { name: "large.png" }).waitFor();
  await tab.close();
});

test("a text and a PDF are chosen, sent and shown, also after a reload", async () => {
  const tab = await openPage();
  const names = ["plan.md", "report.pdf"];
  const paths = names.map((name) => join(server.folder, name));
  writeFileSync(paths[0], "the plan is simple");
  writeFileSync(paths[1], "%PDF-1.4\n%%EOF\n");
  await chooseFiles(tab, ...paths);
  for (const name of names) await chosenFiles(tab).getByText(name).waitFor();
  await tab.send("read these");
  for (let visit = 0; visit < 2; visit++) {
    const turn = await tab.waitForTurn("read these");
    for (const name of names) await turn.getByRole("button", { name: new RegExp(name) }).waitFor();
    await tab.page.reload();
  }
  await tab.close();
});

test("a file with one byte more is refused with a reason before it is sent", async () => {
  const tab = await openPage();
  await chooseFiles(tab, writeImage("larger.png", MAX_FILE_BYTES + 1));
  await tab.page.getByRole("alert").getByText("26,214,401 bytes").waitFor();
  assert.equal(await chosenFiles(tab).count(), 0);
  assert.equal(await tab.page.getByRole("button", { name: "Send" }).isDisabled(), true);
  await tab.close();
});

test("a draft survives a visit to other screens and sessions", async () => {
  await server.sendAll("begun", ["/say before"]);
  const tab = await openPage({ path: "/#/chat/begun" });
  await tab.messageField.fill("half a thou");
  await insertFile(tab, "paste", "kept.txt", "text/plain", "kept");
  await chooseFiles(tab, writeImage("kept.png", 100));
  for (const screen of ["Sessions", "Terminals", "Usage"]) {
    await tab.page.getByRole("link", { name: screen, exact: true }).click();
    await tab.page.getByRole("heading", { name: screen, level: 1 }).waitFor();
    await tab.page.getByRole("link", { name: "Chat", exact: true }).click();
    await chosenFiles(tab).getByText("kept.txt").waitFor();
    assert.equal(await tab.messageField.inputValue(), "half a thou");
  }
  assert.equal(await chosenFiles(tab).locator("img").evaluate((image) => image.decode().then(() => image.naturalWidth)), 1);
  await tab.page.getByRole("button", { name: "New chat" }).click();
  await chosenFiles(tab).first().waitFor({ state: "detached" });
  assert.equal(await tab.messageField.inputValue(), "");
  await tab.waitForConnection("open");
  await tab.page.goBack();
  await chosenFiles(tab).getByText("kept.txt").waitFor();
  await tab.messageField.press("End");
  await tab.messageField.pressSequentially("ght");
  await tab.messageField.press("Enter");
  await (await tab.waitForTurn("half a thought")).getByRole("button", { name: /kept\.txt/ }).waitFor();
  assert.equal(await tab.messageField.inputValue(), "");
  assert.equal(await chosenFiles(tab).count(), 0);
  await tab.close();
});

test("a reload keeps drafts, also in a new chat, but not sent messages", async () => {
  const tab = await openPage();
  await tab.messageField.fill("begun in a new chat");
  await tab.page.reload();
  await tab.waitForConnection("open");
  assert.equal(await tab.messageField.inputValue(), "begun in a new chat");
  await tab.messageField.fill("/say sent");
  await tab.messageField.press("Enter");
  await tab.waitForTurn("/say sent");
  await tab.messageField.fill("begun here");
  await tab.page.getByRole("button", { name: "New chat" }).click();
  await tab.page.getByRole("heading", { name: "New chat", level: 1 }).waitFor();
  await tab.messageField.fill("begun there");
  await tab.page.reload();
  await tab.waitForConnection("open");
  assert.equal(await tab.messageField.inputValue(), "begun there");
  await tab.page.getByRole("navigation").getByRole("link", { name: "/say sent" }).click();
  await tab.waitForTurn("/say sent");
  assert.equal(await tab.messageField.inputValue(), "begun here");
  await tab.messageField.fill("/say this too");
  await tab.messageField.press("Enter");
  await tab.waitForTurn("/say this too");
  await tab.page.reload();
  await tab.waitForTurn("/say this too");
  assert.equal(await tab.messageField.inputValue(), "");
  await tab.close();
});

test("the page leaves dragged text to the browser", async () => {
  const tab = await openPage();
  await tab.messageField.waitFor();
  const isHandled = await tab.page.evaluate(() => {
    const data = new DataTransfer();
    data.setData("text/plain", "words");
    return !document.getElementById("message").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  assert.equal(isHandled, false);
  await tab.close();
});

test("a file dropped outside of the chat is not opened by the browser", async () => {
  const tab = await openPage({ path: "/#/sessions" });
  await tab.page.getByRole("searchbox").waitFor();
  const isPrevented = await tab.page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(["words"], "words.txt"));
    return ["dragover", "drop"].map((name) => !document.body.dispatchEvent(new DragEvent(name, { dataTransfer: data, bubbles: true, cancelable: true })));
  });
  assert.deepEqual(isPrevented, [true, true]);
  await tab.close();
});

test("a file that cannot be saved shows the reason, and can be saved later", async () => {
  const tab = await openPage({ allow: NETWORK });
  await insertFile(tab, "paste", "wanted.txt", "text/plain", "wanted");
  await tab.send("keep this");
  const turn = await tab.waitForTurn("keep this");
  const file = turn.getByRole("button", { name: /wanted\.txt/ });
  const error = turn.getByRole("alert");
  await tab.page.route("**/api/media/*", (route) => route.fulfill({ status: 404 }));
  await file.click();
  await error.getByText("The server no longer has this file.").waitFor();
  await tab.checkAccessibility("a file that is gone");
  await tab.page.unrouteAll();
  await tab.page.route("**/api/media/*", (route) => route.abort());
  await file.click();
  await error.getByText("The file was not saved. The server does not answer.").waitFor();
  await tab.page.unrouteAll();
  const saved = tab.page.waitForEvent("download");
  await file.click();
  await saved;
  await error.waitFor({ state: "detached" });
  await tab.close();
});

test("files are added by paste and by drop, and can be removed", async () => {
  const tab = await openPage();
  await insertFile(tab, "paste", "pasted.txt", "text/plain", "pasted");
  await insertFile(tab, "drop", "dropped.txt", "text/plain", "dropped");
  await chosenFiles(tab).nth(1).waitFor();
  assert.equal(await chosenFiles(tab).count(), 2);
  await tab.page.getByRole("button", { name: "Remove pasted.txt" }).click();
  await tab.page.getByRole("button", { name: "Send" }).click();
  const turn = tab.page.locator('article[data-status="completed"]');
  const saved = tab.page.waitForEvent("download");
  await turn.getByRole("button", { name: /dropped\.txt/ }).click();
  const stream = await (await saved).createReadStream();
  assert.equal(Buffer.concat(await stream.toArray()).toString(), "dropped");
  await tab.close();
});
