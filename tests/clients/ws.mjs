// Runs the scenario with the npm package `ws`. Usage: node ws.mjs BASE TOKEN
import WebSocket from "ws";
import { scenario } from "./scenario.mjs";

const [base, token] = process.argv.slice(2);
const steps = await scenario(WebSocket, base, token);
console.log(`ws: ${steps.length} steps`);
