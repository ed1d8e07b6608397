// Runs the scenario with the WebSocket of a browser. Usage: node browser.mjs ADDRESS TOKEN CHROMIUM
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [address, token, executablePath] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  const page = await browser.newPage();
  const consoleErrors = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) consoleErrors.push(message.text());
  });
  page.on("pageerror", (error) => consoleErrors.push(String(error)));

  await page.goto(`http://${address}/`);
  // `page.evaluate` works although the policy of the page forbids inline scripts.
  const source = readFileSync(new URL("scenario.mjs", import.meta.url), "utf8").replace("export async", "async");
  const steps = await page.evaluate(`(async () => { ${source}; return scenario(WebSocket, "ws://${address}/supr/ws", "${token}"); })()`);
  console.log(`browser: ${steps.length} steps`);
  if (consoleErrors.length) throw new Error(`the page logged errors: ${consoleErrors.join("; ")}`);
} finally {
  await browser.close();
}
