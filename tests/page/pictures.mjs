// Makes the pictures of the README anew. Usage: PARLOR_BINARY=… node pictures.mjs
import { Browser } from "./browser.mjs";
import { Server } from "./server.mjs";

const folder = new URL("../../docs/pictures/", import.meta.url).pathname;
const wide = { viewport: { width: 1200, height: 780 } };

const server = await Server.start();
const browser = await Browser.launch();
try {
  await server.fill("garden", ["/say Water the garden at seven.", "!uptime -p"]);
  await server.run("chat", "/say What came through the terminal is here too.");
  await server.fill("release", ["deploy api", "break"], "demo");
  await server.fill("web", ["deploy web"], "demo");

  const chat = await (await browser.visit(server, { path: "/#/chat/web", colorScheme: "light", viewport: { width: 1200, height: 1260 } })).begin();
  const turn = await chat.ended("deploy web");
  await turn.getByRole("button", { name: /^Worked/ }).click();
  await turn.getByRole("img", { name: /Where the time went/ }).waitFor();
  await turn.locator(".hljs-keyword").first().waitFor();
  await chat.page.mouse.move(0, 0);
  await chat.page.screenshot({ path: `${folder}chat.png` });
  await chat.end();

  const house = await (await browser.visit(server, { path: "/#/house", colorScheme: "light", ...wide })).begin();
  const busy = await house.another("/#/chat/backup");
  await busy.say("/wait 60");
  await house.page.getByRole("list", { name: "Sessions" }).getByText("Running").waitFor();
  await house.page.screenshot({ path: `${folder}sessions.png` });
  await busy.page.keyboard.press("Escape");
  await busy.ended("/wait 60", "stopped");
  await house.end();

  const terminal = await (await browser.visit(server, { path: "/#/terminals", colorScheme: "dark", ...wide })).begin();
  await terminal.page.getByRole("button", { name: "New terminal" }).click();
  await terminal.page.locator(".xterm-helper-textarea:focus").waitFor();
  await terminal.page.keyboard.type("mkdir garden; cd garden; mkdir beds paths; touch plan.txt; PS1='garden $ '; clear\n");
  const rows = terminal.page.locator(".xterm-rows > div");
  for (const order of ["ls --color=always", "uname -s", "seq -s ' ' 12", ""]) {
    await rows.filter({ hasText: /^garden \$\s*$/ }).waitFor();
    if (order) await terminal.page.keyboard.type(`${order}\n`);
  }
  await terminal.page.screenshot({ path: `${folder}terminal.png` });
  await terminal.end();

  const phone = await (await browser.visit(server, { path: "/#/chat/release", colorScheme: "dark", viewport: { width: 390, height: 780 } })).begin();
  await phone.ended("break", "failed");
  await phone.connection("open");
  await phone.page.screenshot({ path: `${folder}phone.png` });
  await phone.end();
} finally {
  await browser.close();
  await server.stop();
}
