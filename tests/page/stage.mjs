// What a file of tests plays on: a server and a browser, which are gone when its last test is done.
import { after } from "node:test";
import { Browser } from "./browser.mjs";
import { Server } from "./server.mjs";

/** Sets it up. `visit` opens a page of a new visitor, at `path` unless it is told another. */
export async function setUp({ path = "/", ...options } = {}) {
  const server = await Server.start(options);
  after(() => server.stop());
  const browser = await Browser.launch();
  after(() => browser.close());
  return { server, browser, visit: async (how) => (await browser.visit(server, { path, ...how })).begin() };
}
