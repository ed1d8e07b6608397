"""The scenario with the package `websockets` of PyPI. Usage: websockets_client.py BASE TOKEN"""

import asyncio
import base64
import json
import sys
import uuid

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

base, token = sys.argv[1:]
steps = 0


def check(holds, what):
    global steps
    if not holds:
        raise AssertionError(what)
    steps += 1


async def frames_until(socket, is_last):
    frames = []
    while not frames or not is_last(frames[-1]):
        frames.append(json.loads(await socket.recv()))
    return frames


def is_end(frame):
    return frame.get("event_type") in ("run.completed", "run.failed")


async def send(socket, kind, payload):
    await socket.send(json.dumps({"type": kind, "payload": payload}))


def door(query):
    return connect(f"{base}?{query}", subprotocols=[f"token.{token}"])


async def main():
    query = f"session_id={uuid.uuid4()}"
    async with door(query) as first:
        check(first.subprotocol == f"token.{token}", "the subprotocol is echoed")
        check(json.loads(await first.recv())["type"] == "agent.list", "the first frame is agent.list")

        await send(first, "message.send", {"content": "/say hello there"})
        talk = await frames_until(first, is_end)
        check([event["sequence"] for event in talk] == list(range(1, len(talk) + 1)), "numbered without a gap")
        said = next(event for event in talk if event["event_type"] == "message.completed")
        check(said["data"]["text"] == "hello there", "the answer is there")

        # In pieces, with a ping between them.
        frame = json.dumps({"type": "message.send", "payload": {"content": "/say in pieces"}})
        await first.send([frame[:10], frame[10:20], frame[20:]])
        await (await first.ping())
        pieces = await frames_until(first, is_end)
        check(any(event["data"].get("text") == "in pieces" for event in pieces), "a message in fragments is one message")

        file = {"data": base64.b64encode(b"x" * 100_000).decode(), "filename": "a.bin"}
        await send(first, "media.send", {"attachments": [file, dict(file, filename="b.bin")], "caption": "two"})
        upload = await frames_until(first, is_end)
        check(len(upload[0]["data"]["input"]["media"]) == 2, "files come along")

        await send(first, "message.send", {"content": "/wait 60"})
        run = (await frames_until(first, lambda frame: frame["event_type"] == "message.started"))[0]["run_id"]
        await send(first, "run.stop", {"run_id": run})
        stopped = (await frames_until(first, is_end))[-2:]
        check(stopped[0]["data"]["text"] == "Stopped by user.", "a stopped run says so")
        check(stopped[1]["data"]["error_code"] == "RUN_CANCELLED", "and has failed as cancelled")

        async with door(query) as second:
            check(json.loads(await second.recv())["type"] == "agent.list", "a second connection takes over")
            try:
                await first.recv()
                check(False, "the first is closed")
            except ConnectionClosed as closed:
                check(closed.rcvd.code == 4001 and closed.rcvd.reason == "replaced", "and told why")
            await send(second, "message.send", {"content": "/wait 2"})
            begun = (await frames_until(second, lambda frame: frame["event_type"] == "message.started"))[-1]

    async with door(f"{query}&after={begun['event_id']}") as third:
        await third.recv()
        rest = await frames_until(third, is_end)
        expected = list(range(begun["sequence"] + 1, begun["sequence"] + 1 + len(rest)))
        check([event["sequence"] for event in rest] == expected, "events go on where they ended")

    async with door(f"{query}&last_event_id={said['event_id']}") as fourth:
        await fourth.recv()
        replayed = await frames_until(fourth, lambda event: event["event_id"] == rest[-1]["event_id"])
        check(all(event["replay"] for event in replayed), "what is told again is marked")
        check(len({event["event_id"] for event in replayed}) == len(replayed), "and told once")


asyncio.run(asyncio.wait_for(main(), 60))
print(f"websockets: {steps} steps")
