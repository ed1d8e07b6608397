// Starts a server and a browser for one test file; both are closed after its last test.
import { after } from "node:test";
import { Browser } from "./browser.mjs";
import { Server } from "./server.mjs";

/** `openPage` opens a page with new cookies and storage, at `path` unless its options name another path. */
export async function setUp({ path = "/", ...serverOptions } = {}) {
  const server = await Server.start(serverOptions);
  after(() => server.stop());
  const browser = await Browser.launch();
  after(() => browser.close());
  return { server, browser, openPage: async (options) => (await browser.newPage(server, { path, ...options })).open() };
}
