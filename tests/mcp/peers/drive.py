"""Lists and calls tools, and delegates tasks, with the Python client, on stdio and over HTTP.

Usage: drive.py PARLOR ADDRESS TOKEN
"""
import asyncio, os, sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

PARLOR, ADDRESS, TOKEN = sys.argv[1:]


async def drive(name, session):
    await session.initialize()
    tools = [tool.name for tool in (await session.list_tools()).tools]
    assert "session_start" in tools and "read_file" in tools, tools
    listed = await session.call_tool("list_dir", {"path": "."})
    assert not listed.is_error, listed
    started = (await session.call_tool("session_start", {"message": "/say hello"})).structured_content
    seen = []

    async def on_progress(progress, total, message):
        seen.append(message)

    waited = await session.call_tool(
        "session_wait", {"session_id": started["session_id"]}, progress_callback=on_progress
    )
    assert waited.structured_content["status"] == "completed", waited
    assert waited.structured_content["text"] == "hello", waited
    wrong = await session.call_tool("session_stop", {"session_id": started["session_id"]})
    assert wrong.is_error, wrong
    long = (await session.call_tool("session_start", {"message": "/wait 60"})).structured_content
    some = await session.call_tool("session_wait", {**pick(long), "timeout_s": 1}, progress_callback=on_progress)
    assert some.structured_content["status"] == "running", some
    abandoned = asyncio.create_task(session.call_tool("session_wait", pick(long)))
    await asyncio.sleep(0)
    abandoned.cancel()
    assert not (await session.call_tool("session_stop", pick(long))).is_error
    stopped = await session.call_tool("session_wait", pick(long))
    assert stopped.structured_content["status"] == "stopped", stopped
    print(f"python mcp on {name}: {len(tools)} tools, {len(seen)} reports of progress, a task cancelled")
    return (await session.call_tool("session_start", {"message": "/wait 2"})).structured_content


def pick(started):
    return {"session_id": started["session_id"]}


async def find_again(name, kept, session):
    """The connection of the client that started the task is gone; the log has the task."""
    await session.initialize()
    again = (await session.call_tool("session_wait", pick(kept))).structured_content
    # The process of a client on stdio ends with it, and stops its own tasks; over HTTP they go on.
    assert again["status"] == ("completed" if name == "http" else "stopped"), again
    print(f"python mcp on {name}: found the task again after the connection was lost")


async def on_stdio(work):
    async with stdio_client(StdioServerParameters(command=PARLOR, args=["stdio", "mcp"], env=dict(os.environ))) as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            return await work("stdio", session)


async def over_http(work):
    client = create_mcp_http_client(headers={"Authorization": f"Bearer {TOKEN}"})
    async with client, streamable_http_client(f"{ADDRESS}/mcp", http_client=client) as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            return await work("http", session)


async def main():
    for connect in [on_stdio, over_http]:
        kept = await connect(drive)
        await connect(lambda name, session: find_again(name, kept, session))


asyncio.run(main())
