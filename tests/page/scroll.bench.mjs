// Measures how smoothly 10,000 messages scroll, from a trace of the browser: the time for which the main thread is busy in each
// frame, as processor time and as wall time. Usage: PARLOR_BINARY=… node scroll.bench.mjs
import { Browser } from "./browser.mjs";
import { Server, waitUntil } from "./server.mjs";
import { LONG_SESSION, messages } from "./long-conversation.mjs";

/** How many frames are measured, with one scroll step each. */
const FRAMES = 600;
const LIMIT_MS = 16;

const server = await Server.start();
const browser = await Browser.launch();
try {
  console.log("writing 10,000 messages …");
  await server.sendAll(LONG_SESSION, messages());
  const tab = await (await browser.newPage(server, { path: `/#/chat/${LONG_SESSION}` })).open();
  const scroller = tab.page.getByRole("region", { name: "Conversation" });
  await scroller.waitFor();
  await waitUntil("the beginning", async () => {
    await scroller.evaluate((element) => (element.scrollTop = 0));
    return tab.page.getByText("Beginning of the conversation").isVisible();
  });
  for (const [name, distance] of [["down", 240], ["up", -240], ["fast", 4_000]]) {
    await browser.inner.startTracing(tab.page, { categories: ["devtools.timeline", "disabled-by-default-devtools.timeline", "toplevel"] });
    await scroller.evaluate(
      async (element, [frames, step]) => {
        for (let frame = 0; frame < frames; frame++) {
          element.scrollTop += step;
          await new Promise(requestAnimationFrame);
        }
      },
      [FRAMES, distance],
    );
    const { traceEvents } = JSON.parse((await browser.inner.stopTracing()).toString());
    report(name, traceEvents);
  }
  await tab.close();
} finally {
  await browser.close();
  await server.stop();
}

function report(name, events) {
  const main = events.find(({ name }) => name === "FireAnimationFrame");
  const own = events.filter(({ pid, tid }) => pid === main.pid && tid === main.tid);
  const frames = own.filter(({ name }) => name === "Commit").map(({ ts }) => ts).sort((a, b) => a - b);
  // The trace has processor time (`tdur`) beside wall time (`dur`), which also counts other programs on the machine.
  const tasks = own.filter(({ name, ph }) => name === "RunTask" && ph === "X").sort((a, b) => a.ts - b.ts);
  const wallTimes = [];
  const busyTimes = [];
  let next = 0;
  for (const [index, end] of frames.slice(1).entries()) {
    let [wall, thread] = [0, 0];
    for (; next < tasks.length && tasks[next].ts < end; next++) {
      if (tasks[next].ts < frames[index]) continue;
      wall += tasks[next].dur;
      thread += tasks[next].tdur ?? tasks[next].dur;
    }
    wallTimes.push(wall / 1000);
    busyTimes.push(thread / 1000);
  }
  const p95 = percentile(busyTimes, 0.95);
  const summary = (values) => `p50 ${percentile(values, 0.5)} ms, p95 ${percentile(values, 0.95)} ms, max ${percentile(values, 1)} ms`;
  console.log(`${name}: ${busyTimes.length} frames, ${p95 < LIMIT_MS ? "under" : "OVER"} ${LIMIT_MS} ms; processor time ${summary(busyTimes)}; wall time ${summary(wallTimes)}`);
}

function percentile(values, fraction) {
  const sorted = values.toSorted((a, b) => a - b);
  return Number(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))].toFixed(1));
}
