// A parent as the real one is: it starts a child, decodes each piece of its output on its own, and
// passes lines on. First line: the child's process number. Arguments: the program and its arguments.
import { spawn } from "node:child_process";

const [program, ...args] = process.argv.slice(2);
const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
process.stdout.write(`${child.pid}\n`);
child.stdout.on("data", (chunk) => process.stdout.write(chunk.toString("utf8")));
process.stdin.on("data", (chunk) => child.stdin.write(chunk));
process.stdin.on("end", () => child.stdin.end());
child.on("exit", (code) => process.exit(code ?? 1));
