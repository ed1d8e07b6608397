"""Runs the scenario with the PyPI package `websockets`. Usage: websockets_client.py BASE TOKEN"""

import asyncio
import base64
import json
import sys
import uuid

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

base, token = sys.argv[1:]
steps = 0


def check(condition, name):
    global steps
    if not condition:
        raise AssertionError(name)
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


def open_socket(query):
    return connect(f"{base}?{query}", subprotocols=[f"token.{token}"])


async def main():
    query = f"session_id={uuid.uuid4()}"
    async with open_socket(query) as first:
        check(first.subprotocol == f"token.{token}", "the subprotocol is echoed")
        check(json.loads(await first.recv())["type"] == "agent.list", "the first frame is agent.list")

        await send(first, "message.send", {"content": "/say hello there"})
        run = await frames_until(first, is_end)
        check([event["sequence"] for event in run] == list(range(1, len(run) + 1)), "event sequences have no gap")
        answer = next(event for event in run if event["event_type"] == "message.completed")
        check(answer["data"]["text"] == "hello there", "the answer is complete")

        # This client asks for a small window in both directions.
        extensions = [extension.name for extension in first.protocol.extensions]
        check(extensions == ["permessage-deflate"], "messages may be compressed")
        long = "\n".join(f"line {index} of a long answer" for index in range(2000))
        await send(first, "message.send", {"content": f"/say {long}"})
        events = await frames_until(first, is_end)
        check(any(event["data"].get("text") == long for event in events), "a long message and its answer are complete")

        # A fragmented message, followed by a ping.
        frame = json.dumps({"type": "message.send", "payload": {"content": "/say in pieces"}})
        await first.send([frame[:10], frame[10:20], frame[20:]])
        await (await first.ping())
        events = await frames_until(first, is_end)
        check(any(event["data"].get("text") == "in pieces" for event in events), "a fragmented message is one message")

        file = {"data": base64.b64encode(b"x" * 100_000).decode(), "filename": "a.bin"}
        await send(first, "media.send", {"attachments": [file, dict(file, filename="b.bin")], "caption": "two"})
        upload = await frames_until(first, is_end)
        check(len(upload[0]["data"]["input"]["media"]) == 2, "run.started names both files")

        await send(first, "message.send", {"content": "/wait 60"})
        run_id = (await frames_until(first, lambda frame: frame["event_type"] == "message.started"))[0]["run_id"]
        await send(first, "run.stop", {"run_id": run_id})
        stopped = (await frames_until(first, is_end))[-2:]
        check(stopped[0]["data"]["text"] == "Stopped by user.", "a stopped run gives the reason")
        check(stopped[1]["data"]["error_code"] == "RUN_CANCELLED", "a stopped run fails with RUN_CANCELLED")

        async with open_socket(query) as second:
            check(json.loads(await second.recv())["type"] == "agent.list", "a second connection takes over")
            try:
                await first.recv()
                check(False, "the first connection is closed")
            except ConnectionClosed as closed:
                check(closed.rcvd.code == 4001 and closed.rcvd.reason == "replaced", "the first connection is closed as replaced")
            await send(second, "message.send", {"content": "/wait 2"})
            last_seen = (await frames_until(second, lambda frame: frame["event_type"] == "message.started"))[-1]

    async with open_socket(f"{query}&after={last_seen['event_id']}") as third:
        await third.recv()
        rest = await frames_until(third, is_end)
        expected = list(range(last_seen["sequence"] + 1, last_seen["sequence"] + 1 + len(rest)))
        check([event["sequence"] for event in rest] == expected, "after a reconnect events continue after the last seen one")

    async with open_socket(f"{query}&last_event_id={answer['event_id']}") as fourth:
        await fourth.recv()
        replayed = await frames_until(fourth, lambda event: event["event_id"] == rest[-1]["event_id"])
        check(all(event["replay"] for event in replayed), "replayed events are marked")
        check(len({event["event_id"] for event in replayed}) == len(replayed), "replayed events have no duplicates")


asyncio.run(asyncio.wait_for(main(), 60))
print(f"websockets: {steps} steps")
