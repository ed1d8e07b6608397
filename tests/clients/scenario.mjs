// A scenario of the supr door: a conversation, a file, a stop, a replaced connection, and a reconnect with replay. Runs in
// Node with the package `ws` and in a browser with its own WebSocket.

/** Returns the names of the checks; throws if one fails. */
export async function scenario(WebSocket, base, token) {
  const steps = [];
  const check = (condition, name) => {
    if (!condition) throw new Error(`failed: ${name}`);
    steps.push(name);
  };

  // Opens a connection that queues frames until the scenario reads them.
  const connect = (query) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(`${base}?${query}`, [`token.${token}`]);
      const frames = [];
      const readers = [];
      const closed = new Promise((done) => socket.addEventListener("close", (event) => done(event)));
      socket.addEventListener("message", (event) => {
        const frame = JSON.parse(event.data);
        const reader = readers.shift();
        if (reader) reader(frame);
        else frames.push(frame);
      });
      const nextFrame = () => (frames.length ? Promise.resolve(frames.shift()) : new Promise((resolve) => readers.push(resolve)));
      const readUntil = async (isLast) => {
        const seen = [];
        for (;;) {
          seen.push(await nextFrame());
          if (isLast(seen[seen.length - 1])) return seen;
        }
      };
      const send = (type, payload) => socket.send(JSON.stringify({ type, payload }));
      socket.addEventListener("error", () => reject(new Error("the connection failed")));
      socket.addEventListener("open", () => resolve({ socket, nextFrame, readUntil, send, closed }));
    });
  const isEnd = (frame) => frame.event_type === "run.completed" || frame.event_type === "run.failed";
  const session = `session-${Math.random()}`;
  const query = `session_id=${encodeURIComponent(session)}`;

  const first = await connect(query);
  check(first.socket.protocol === `token.${token}`, "the subprotocol is echoed");
  const agentList = await first.nextFrame();
  check(agentList.type === "agent.list" && agentList.payload.agents.length > 0, "the first frame is agent.list");

  first.send("message.send", { content: "/say hello there" });
  const run = await first.readUntil(isEnd);
  check(run[0].event_type === "run.started", "the first event is run.started");
  check(run.every((event, index) => event.sequence === index + 1), "event sequences have no gap");
  check(run.every((event) => event.session_id === session && event.data.agent_id === event.agent_id), "each event has its session and agent");
  const answer = run.find((event) => event.event_type === "message.completed");
  check(answer.data.text === "hello there", "the answer is complete");

  check(first.socket.extensions.startsWith("permessage-deflate"), "messages may be compressed");
  const long = Array.from({ length: 2000 }, (_, index) => `line ${index} of a long answer`).join("\n");
  // Only `ws` tells how many bytes have come.
  const bytesBefore = first.socket._socket?.bytesRead;
  first.send("message.send", { content: `/say ${long}` });
  const longRun = await first.readUntil(isEnd);
  check(longRun.find((event) => event.event_type === "message.completed").data.text === long, "a long message and its answer are complete");
  if (bytesBefore !== undefined) {
    const plain = longRun.reduce((sum, event) => sum + JSON.stringify(event).length, 0);
    check((first.socket._socket.bytesRead - bytesBefore) * 4 < plain, "a long answer takes less than a quarter of its bytes");
  }

  first.send("media.send", { data: "aGVsbG8=", filename: "hello.txt", content_type: "text/plain", caption: "a file" });
  const upload = await first.readUntil(isEnd);
  check(upload[0].data.input.media[0].filename === "hello.txt", "run.started names the file");
  check(upload.at(-1).event_type === "run.completed", "the message with the file is answered");

  first.send("message.send", { content: "/wait 60" });
  const started = (await first.readUntil((frame) => frame.event_type === "message.started")).at(0);
  first.send("run.stop", { run_id: started.run_id, reason: "enough" });
  const stopped = (await first.readUntil(isEnd)).slice(-2);
  check(stopped[0].event_type === "message.completed" && stopped[0].data.text === "enough", "a stopped run gives the reason");
  check(stopped[1].data.error_code === "RUN_CANCELLED", "a stopped run fails with RUN_CANCELLED");

  const second = await connect(query);
  check((await second.nextFrame()).type === "agent.list", "a second connection takes over");
  const closed = await first.closed;
  check(closed.code === 4001 && closed.reason === "replaced", "the first connection is closed as replaced");

  second.send("message.send", { content: "/wait 2" });
  const lastSeen = (await second.readUntil((frame) => frame.event_type === "message.started")).at(-1);
  second.socket.close();
  await second.closed;
  const third = await connect(`${query}&after=${lastSeen.event_id}`);
  await third.nextFrame();
  const rest = await third.readUntil(isEnd);
  check(rest[0].sequence === lastSeen.sequence + 1, "after a reconnect events continue after the last seen one");
  check(rest.every((event, index) => event.sequence === rest[0].sequence + index), "continued events have no gap and no duplicate");
  check(rest.at(-1).event_type === "run.completed", "the run completed meanwhile");
  third.socket.close();
  await third.closed;

  const fourth = await connect(`${query}&after=${answer.event_id}`);
  await fourth.nextFrame();
  const replayed = await fourth.readUntil((event) => event.event_id === rest.at(-1).event_id);
  check(replayed.every((event) => event.replay === true), "replayed events are marked");
  check(new Set(replayed.map((event) => event.event_id)).size === replayed.length, "replayed events have no duplicates");
  fourth.socket.close();
  await fourth.closed;
  return steps;
}
