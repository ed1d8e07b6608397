// Serves fixtures.json as the model APIs of several providers. Prints its address. For every line on stdin, prints all
// requests so far as one line of JSON. Exits when stdin is closed.
import { createInterface } from "node:readline";
import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({ port: 0, host: "127.0.0.1", logLevel: "silent" });
mock.loadFixtureFile(new URL("fixtures.json", import.meta.url).pathname);
await mock.start();
console.log(mock.url);
const lines = createInterface({ input: process.stdin });
lines.on("line", () => console.log(JSON.stringify(mock.getRequests())));
lines.on("close", () => process.exit(0));
