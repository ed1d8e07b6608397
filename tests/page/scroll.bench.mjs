// How smooth it is to scroll through 10,000 messages, from a trace of the browser: how long the page's thread is busy in
// each frame, and how long frames are apart. Usage: PARLOR_BINARY=… node scroll.bench.mjs
import { Browser } from "./browser.mjs";
import { Server, until } from "./server.mjs";
import { LONG, words } from "./talk.mjs";

/** So many turns of the wheel, one for each frame. */
const TURNS_OF_THE_WHEEL = 600;
const LIMIT_MS = 16;

const server = await Server.start();
const browser = await Browser.launch();
try {
  console.log("writing 10,000 messages …");
  await server.fill(LONG, words());
  const at = await (await browser.visit(server, { path: `/#/chat/${LONG}` })).begin();
  const scroller = at.page.getByRole("region", { name: "Conversation" });
  await scroller.waitFor();
  await until("the beginning", async () => {
    await scroller.evaluate((element) => (element.scrollTop = 0));
    return at.page.getByText("This is where it begins.").isVisible();
  });
  for (const [name, distance] of [["down", 240], ["up", -240], ["flung", 4_000]]) {
    await browser.inner.startTracing(at.page, { categories: ["devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel"] });
    await scroller.evaluate(
      async (element, [turns, step]) => {
        for (let turn = 0; turn < turns; turn++) {
          element.scrollTop += step;
          await new Promise(requestAnimationFrame);
        }
      },
      [TURNS_OF_THE_WHEEL, distance],
    );
    const { traceEvents } = JSON.parse((await browser.inner.stopTracing()).toString());
    report(name, traceEvents);
  }
  await at.end();
} finally {
  await browser.close();
  await server.stop();
}

function report(name, events) {
  const main = events.find(({ name }) => name === "FireAnimationFrame");
  const own = events.filter(({ pid, tid }) => pid === main.pid && tid === main.tid);
  const frames = own.filter(({ name }) => name === "Commit").map(({ ts }) => ts).sort((a, b) => a - b);
  // The trace has the time that the thread had a processor beside the time that went by; others want the machine too.
  const tasks = own.filter(({ name, ph }) => name === "RunTask" && ph === "X").sort((a, b) => a.ts - b.ts);
  const gone = [];
  const busy = [];
  let next = 0;
  for (const [index, end] of frames.slice(1).entries()) {
    let [wall, thread] = [0, 0];
    for (; next < tasks.length && tasks[next].ts < end; next++) {
      if (tasks[next].ts < frames[index]) continue;
      wall += tasks[next].dur;
      thread += tasks[next].tdur ?? tasks[next].dur;
    }
    gone.push(wall / 1000);
    busy.push(thread / 1000);
  }
  const p95 = percentile(busy, 0.95);
  const words = (values) => `p50 ${percentile(values, 0.5)} ms, p95 ${percentile(values, 0.95)} ms, most ${percentile(values, 1)} ms`;
  console.log(`${name}: ${busy.length} frames, ${p95 < LIMIT_MS ? "under" : "OVER"} ${LIMIT_MS} ms; work ${words(busy)}; time gone by ${words(gone)}`);
}

function percentile(values, share) {
  const sorted = values.toSorted((a, b) => a - b);
  return Number(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))].toFixed(1));
}
