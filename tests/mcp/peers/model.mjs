// Serves the fixtures of a file as a model, with aimock. Prints its address.
//
// Usage: model.mjs FIXTURES
import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({ port: 0, host: "127.0.0.1", logLevel: "silent" });
mock.loadFixtureFile(process.argv[2]);
await mock.start();
console.log(mock.url);
