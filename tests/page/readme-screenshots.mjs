// Takes the screenshots in docs/pictures. Usage: PARLOR_BINARY=… node readme-screenshots.mjs
import { Browser } from "./browser.mjs";
import { Server } from "./server.mjs";

const folder = new URL("../../docs/pictures/", import.meta.url).pathname;
const wide = { viewport: { width: 1200, height: 780 } };

const server = await Server.start();
const browser = await Browser.launch();
try {
  await server.sendAll("garden", ["/say Water the garden at seven.", "!uptime -p"]);
  await server.run("chat", "/say Sessions of the command line are listed too.");
  await server.sendAll("release", ["deploy api", "break"], "demo");
  await server.sendAll("web", ["deploy web"], "demo");

  const chat = await (await browser.newPage(server, { path: "/#/chat/web", colorScheme: "light", viewport: { width: 1200, height: 1260 } })).open();
  const turn = await chat.waitForTurn("deploy web");
  await turn.getByRole("button", { name: /^Worked/ }).click();
  await turn.getByRole("img", { name: /Duration of each step/ }).waitFor();
  await turn.locator(".hljs-keyword").first().waitFor();
  await chat.page.mouse.move(0, 0);
  await chat.page.screenshot({ path: `${folder}chat.png` });
  await chat.close();

  const sessions = await (await browser.newPage(server, { path: "/#/sessions", colorScheme: "light", ...wide })).open();
  const busy = await sessions.openTab("/#/chat/backup");
  await busy.send("/wait 60");
  await sessions.page.getByRole("list", { name: "Sessions" }).getByText("Running").waitFor();
  await sessions.page.screenshot({ path: `${folder}sessions.png` });
  await busy.page.keyboard.press("Escape");
  await busy.waitForTurn("/wait 60", "stopped");
  await sessions.close();

  const terminal = await (await browser.newPage(server, { path: "/#/terminals", colorScheme: "dark", ...wide })).open();
  await terminal.page.getByRole("button", { name: "New terminal" }).click();
  await terminal.page.locator(".xterm-helper-textarea:focus").waitFor();
  await terminal.page.keyboard.type("mkdir garden; cd garden; mkdir beds paths; touch plan.txt; PS1='garden $ '; clear\n");
  const rows = terminal.page.locator(".xterm-rows > div");
  for (const command of ["ls --color=always", "uname -s", "seq -s ' ' 12", ""]) {
    await rows.filter({ hasText: /^garden \$\s*$/ }).waitFor();
    if (command) await terminal.page.keyboard.type(`${command}\n`);
  }
  await terminal.page.screenshot({ path: `${folder}terminal.png` });
  await terminal.close();

  const phone = await (await browser.newPage(server, { path: "/#/chat/release", colorScheme: "dark", viewport: { width: 390, height: 780 } })).open();
  await phone.waitForTurn("break", "failed");
  await phone.waitForConnection("open");
  await phone.page.screenshot({ path: `${folder}phone.png` });
  await phone.close();
} finally {
  await browser.close();
  await server.stop();
}
