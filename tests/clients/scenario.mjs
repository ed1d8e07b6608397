// What every client does with the supr door: a conversation, a file, a stop, a replacement, and a
// reconnection with replay. Runs in Node with the package `ws` and in a browser with its own WebSocket.

export async function scenario(WebSocket, base, token) {
  const steps = [];
  const check = (holds, what) => {
    if (!holds) throw new Error(what);
    steps.push(what);
  };

  // One connection; frames wait until they are asked for.
  const connect = (query) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(`${base}?${query}`, [`token.${token}`]);
      const frames = [];
      const waiting = [];
      const closed = new Promise((done) => socket.addEventListener("close", (event) => done(event)));
      socket.addEventListener("message", (event) => {
        const frame = JSON.parse(event.data);
        const taker = waiting.shift();
        if (taker) taker(frame);
        else frames.push(frame);
      });
      const frame = () => (frames.length ? Promise.resolve(frames.shift()) : new Promise((take) => waiting.push(take)));
      const until = async (is) => {
        const seen = [];
        for (;;) {
          seen.push(await frame());
          if (is(seen[seen.length - 1])) return seen;
        }
      };
      const send = (type, payload) => socket.send(JSON.stringify({ type, payload }));
      socket.addEventListener("error", () => reject(new Error("no connection")));
      socket.addEventListener("open", () => resolve({ socket, frame, until, send, closed }));
    });
  const isEnd = (frame) => frame.event_type === "run.completed" || frame.event_type === "run.failed";
  const session = `session-${Math.random()}`;
  const query = `session_id=${encodeURIComponent(session)}`;

  const first = await connect(query);
  check(first.socket.protocol === `token.${token}`, "the subprotocol is echoed");
  const hello = await first.frame();
  check(hello.type === "agent.list" && hello.payload.agents.length > 0, "the first frame is agent.list");

  first.send("message.send", { content: "/say hello there" });
  const talk = await first.until(isEnd);
  check(talk[0].event_type === "run.started", "a run begins");
  check(talk.every((event, index) => event.sequence === index + 1), "its events are numbered without a gap");
  check(talk.every((event) => event.session_id === session && event.data.agent_id === event.agent_id), "each has its session and its agent");
  const said = talk.find((event) => event.event_type === "message.completed");
  check(said.data.text === "hello there", "the answer is there");

  first.send("media.send", { data: "aGVsbG8=", filename: "hello.txt", content_type: "text/plain", caption: "a file" });
  const upload = await first.until(isEnd);
  check(upload[0].data.input.media[0].filename === "hello.txt", "a file comes along with a message");
  check(upload.at(-1).event_type === "run.completed", "and is answered");

  first.send("message.send", { content: "/wait 60" });
  const waits = (await first.until((frame) => frame.event_type === "message.started")).at(0);
  first.send("run.stop", { run_id: waits.run_id, reason: "enough" });
  const stopped = (await first.until(isEnd)).slice(-2);
  check(stopped[0].event_type === "message.completed" && stopped[0].data.text === "enough", "a stopped run says why");
  check(stopped[1].data.error_code === "RUN_CANCELLED", "and has failed as cancelled");

  const second = await connect(query);
  check((await second.frame()).type === "agent.list", "a second connection takes over");
  const closed = await first.closed;
  check(closed.code === 4001 && closed.reason === "replaced", "the first is told so");

  second.send("message.send", { content: "/wait 2" });
  const begun = (await second.until((frame) => frame.event_type === "message.started")).at(-1);
  second.socket.close();
  await second.closed;
  const third = await connect(`${query}&after=${begun.event_id}`);
  await third.frame();
  const rest = await third.until(isEnd);
  check(rest[0].sequence === begun.sequence + 1, "after a reconnection events go on where they ended");
  check(rest.every((event, index) => event.sequence === rest[0].sequence + index), "without a gap or a double");
  check(rest.at(-1).event_type === "run.completed", "and the run has gone on");
  third.socket.close();
  await third.closed;

  const fourth = await connect(`${query}&after=${said.event_id}`);
  await fourth.frame();
  const replayed = await fourth.until((event) => event.event_id === rest.at(-1).event_id);
  check(replayed.every((event) => event.replay === true), "what is told again is marked");
  check(new Set(replayed.map((event) => event.event_id)).size === replayed.length, "and told once");
  fourth.socket.close();
  await fourth.closed;
  return steps;
}
