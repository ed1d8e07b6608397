"""Drives the bridge end to end: an MCP client, `shim.py` on stdio, the bridge at SUPEX_HOST and SUPEX_PORT."""

import asyncio
import json
import os
import pathlib
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SHIM = pathlib.Path(__file__).with_name("shim.py")


async def main():
    env = {name: os.environ[name] for name in ("SUPEX_HOST", "SUPEX_PORT", "PATH")}
    parameters = StdioServerParameters(command=sys.executable, args=[str(SHIM)], env=env)
    async with stdio_client(parameters) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()

        async def call(tool, **arguments):
            result = await session.call_tool(tool, arguments)
            assert not result.isError and len(result.content) == 1, result
            return json.loads(result.content[0].text)

        names = {tool.name for tool in (await session.list_tools()).tools}
        assert {"eval_ruby", "eval_ruby_file", "get_model_info", "check_sketchup_status"} <= names, names
        status = await call("check_sketchup_status")
        assert status["status"] == "connected" and status["version"] == "0.2.0", status
        assert await call("eval_ruby", code="1 + 1") == {"success": True, "result": "2"}
        assert "." in (await call("eval_ruby", code="Sketchup.version"))["result"]
        assert (await call("eval_ruby", code='"Příliš"'))["result"] == "Příliš"
        failed = await call("eval_ruby", code='raise "on purpose"')
        assert failed["error_code"] == -32000 and "on purpose" in failed["error"], failed
        denied = await call("eval_ruby_file", file_path="/etc/hostname")
        assert denied["error_code"] == -32002, denied
        missing = await call("get_model_info")
        assert missing["error_code"] == -32603 and "SketchUp is not available" in missing["error"], missing
        for count in range(1, 21):
            assert (await call("eval_ruby", code="$n = ($n || 0) + 1"))["result"] == str(count)
        results = await asyncio.gather(*(call("eval_ruby", code=f"{n} * 2") for n in range(20)))
        assert [result["result"] for result in results] == [str(n * 2) for n in range(20)], results
    print("the bridge was driven through MCP: all answers are right")


asyncio.run(main())
