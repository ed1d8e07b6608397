// The scenario with the WebSocket of a browser. Usage: node browser.mjs ADDRESS TOKEN CHROMIUM
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [address, token, executablePath] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
try {
  const page = await browser.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));

  await page.goto(`http://${address}/`);
  // Evaluated with the page's own means: what the page's policy forbids to a script is not asked of it.
  const source = readFileSync(new URL("scenario.mjs", import.meta.url), "utf8").replace("export async", "async");
  const steps = await page.evaluate(`(async () => { ${source}; return scenario(WebSocket, "ws://${address}/supr/ws", "${token}"); })()`);
  console.log(`browser: ${steps.length} steps`);
  if (complaints.length) throw new Error(`the console says: ${complaints.join("; ")}`);
} finally {
  await browser.close();
}
