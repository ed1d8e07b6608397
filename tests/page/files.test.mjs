// Files: by button, paste and drop, with previews, and the size rule to the byte.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { NETWORK } from "./browser.mjs";
import { setUp } from "./stage.mjs";

const MAX = 25 * 1024 * 1024;
const PNG = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==", "base64");

const { server, visit } = await setUp();
/** A picture of any size: what follows its end is ignored by those who show it. */
function picture(name, size) {
  const path = join(server.folder, name);
  writeFileSync(path, Buffer.concat([PNG, Buffer.alloc(size - PNG.length)]));
  return path;
}
const chosen = (at) => at.page.getByRole("list", { name: "Files to send" }).getByRole("listitem");

async function choose(at, ...files) {
  const chooser = at.page.waitForEvent("filechooser");
  await at.page.getByRole("button", { name: "Add files" }).click();
  await (await chooser).setFiles(files);
}

async function give(at, how, name, type, text) {
  await at.field.waitFor();
  await at.page.evaluate(
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

test("a picture of 25 MiB is sent, shown, and there again after a reload", async () => {
  const at = await visit();
  await choose(at, picture("large.png", MAX));
  await chosen(at).getByText("25.0 MB").waitFor();
  await chosen(at).locator("img").waitFor();
  await at.say("look at this");
  const turn = await at.ended("look at this");
  const image = turn.getByRole("img", { name: "large.png" });
  await image.waitFor();
  assert.equal(await image.evaluate((element) => element.decode().then(() => element.naturalWidth)), 1);
  assert.equal(await chosen(at).count(), 0);
  await at.page.reload();
  await (await at.ended("look at this")).getByRole("img", { name: "large.png" }).waitFor();
  await at.end();
});

test("one byte more is refused in words before it is sent", async () => {
  const at = await visit();
  await choose(at, picture("larger.png", MAX + 1));
  await at.page.getByRole("alert").getByText("26,214,401 bytes").waitFor();
  assert.equal(await chosen(at).count(), 0);
  assert.equal(await at.page.getByRole("button", { name: "Send" }).isDisabled(), true);
  await at.end();
});

test("what was begun in a session is there again after other screens and sessions", async () => {
  await server.fill("begun", ["/say before"]);
  const at = await visit({ path: "/#/chat/begun" });
  await at.field.fill("half a thou");
  await give(at, "paste", "kept.txt", "text/plain", "kept");
  await choose(at, picture("kept.png", 100));
  for (const screen of ["House", "Terminals", "Usage"]) {
    await at.page.getByRole("link", { name: screen, exact: true }).click();
    await at.page.getByRole("heading", { name: screen, level: 1 }).waitFor();
    await at.page.getByRole("link", { name: "Chat", exact: true }).click();
    await chosen(at).getByText("kept.txt").waitFor();
    assert.equal(await at.field.inputValue(), "half a thou");
  }
  assert.equal(await chosen(at).locator("img").evaluate((image) => image.decode().then(() => image.naturalWidth)), 1);
  await at.page.getByRole("button", { name: "New chat" }).click();
  await chosen(at).first().waitFor({ state: "detached" });
  assert.equal(await at.field.inputValue(), "");
  await at.connection("open");
  await at.page.goBack();
  await chosen(at).getByText("kept.txt").waitFor();
  await at.field.press("End");
  await at.field.pressSequentially("ght");
  await at.field.press("Enter");
  await (await at.ended("half a thought")).getByRole("button", { name: /kept\.txt/ }).waitFor();
  assert.equal(await at.field.inputValue(), "");
  assert.equal(await chosen(at).count(), 0);
  await at.end();
});

test("a reload keeps what was begun, in a new chat too, and forgets what was sent", async () => {
  const at = await visit();
  await at.field.fill("begun in a new chat");
  await at.page.reload();
  await at.connection("open");
  assert.equal(await at.field.inputValue(), "begun in a new chat");
  await at.field.fill("/say sent");
  await at.field.press("Enter");
  await at.ended("/say sent");
  await at.field.fill("begun here");
  await at.page.getByRole("button", { name: "New chat" }).click();
  await at.page.getByRole("heading", { name: "New chat", level: 1 }).waitFor();
  await at.field.fill("begun there");
  await at.page.reload();
  await at.connection("open");
  assert.equal(await at.field.inputValue(), "begun there");
  await at.page.getByRole("navigation").getByRole("link", { name: "/say sent" }).click();
  await at.ended("/say sent");
  assert.equal(await at.field.inputValue(), "begun here");
  await at.field.fill("/say this too");
  await at.field.press("Enter");
  await at.ended("/say this too");
  await at.page.reload();
  await at.ended("/say this too");
  assert.equal(await at.field.inputValue(), "");
  await at.end();
});

test("a text that is dragged is left to the browser", async () => {
  const at = await visit();
  await at.field.waitFor();
  const isTaken = await at.page.evaluate(() => {
    const data = new DataTransfer();
    data.setData("text/plain", "words");
    return !document.getElementById("message").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  });
  assert.equal(isTaken, false);
  await at.end();
});

test("a file that is dropped where nobody takes it is not opened by the browser", async () => {
  const at = await visit({ path: "/#/house" });
  await at.page.getByRole("searchbox").waitFor();
  const caught = await at.page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(["words"], "words.txt"));
    return ["dragover", "drop"].map((name) => !document.body.dispatchEvent(new DragEvent(name, { dataTransfer: data, bubbles: true, cancelable: true })));
  });
  assert.deepEqual(caught, [true, true]);
  await at.end();
});

test("a file that cannot be saved says why, and is saved when it can be", async () => {
  const at = await visit({ allow: NETWORK });
  await give(at, "paste", "wanted.txt", "text/plain", "wanted");
  await at.say("keep this");
  const turn = await at.ended("keep this");
  const file = turn.getByRole("button", { name: /wanted\.txt/ });
  const flaw = turn.getByRole("alert");
  await at.page.route("**/api/media/*", (route) => route.fulfill({ status: 404 }));
  await file.click();
  await flaw.getByText("The server does not have this file any more.").waitFor();
  await at.isAccessible("a file that is gone");
  await at.page.unrouteAll();
  await at.page.route("**/api/media/*", (route) => route.abort());
  await file.click();
  await flaw.getByText("It was not saved. The server cannot be reached.").waitFor();
  await at.page.unrouteAll();
  const saved = at.page.waitForEvent("download");
  await file.click();
  await saved;
  await flaw.waitFor({ state: "detached" });
  await at.end();
});

test("files come by paste and by drop, and can be taken off again", async () => {
  const at = await visit();
  await give(at, "paste", "pasted.txt", "text/plain", "pasted");
  await give(at, "drop", "dropped.txt", "text/plain", "dropped");
  await chosen(at).nth(1).waitFor();
  assert.equal(await chosen(at).count(), 2);
  await at.page.getByRole("button", { name: "Remove pasted.txt" }).click();
  await at.page.getByRole("button", { name: "Send" }).click();
  const turn = at.page.locator('article[data-status="completed"]');
  const saved = at.page.waitForEvent("download");
  await turn.getByRole("button", { name: /dropped\.txt/ }).click();
  const stream = await (await saved).createReadStream();
  assert.equal(Buffer.concat(await stream.toArray()).toString(), "dropped");
  await at.end();
});
