"""An MCP server on stdio before the Supex bridge, as small as can be: for `run.sh`.

Each tool returns one text with the JSON that the bridge gave, or with its error. One persistent
connection; the id on the wire is the request's id as text.
"""

import json
import os
import socket

from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("Supex")


class Bridge:
    def __init__(self):
        self.stream = None

    def call(self, tool, arguments, request_id):
        if self.stream is None:
            address = (os.environ["SUPEX_HOST"], int(os.environ["SUPEX_PORT"]))
            self.stream = socket.create_connection(address, timeout=15)
            self.lines = self.stream.makefile("rb")
            hello = {"name": "mcp-shim", "version": "0.2.0", "agent": "mcp", "pid": os.getpid()}
            self.ask({"jsonrpc": "2.0", "method": "hello", "params": hello, "id": "hello"})
        params = {"name": tool, "arguments": arguments}
        return self.ask({"jsonrpc": "2.0", "method": "tools/call", "params": params, "id": request_id})

    def ask(self, request):
        self.stream.sendall(json.dumps(request).encode() + b"\n")
        reply = json.loads(self.lines.readline())
        assert reply["id"] == request["id"], reply
        if "error" in reply:
            error = reply["error"]
            return {"success": False, "error": error["message"], "error_type": "remote", "error_code": error["code"]}
        return reply["result"]


bridge = Bridge()


def call(tool, arguments, context):
    return json.dumps(bridge.call(tool, arguments, str(context.request_id)))


@server.tool()
def eval_ruby(context: Context, code: str) -> str:
    return call("eval_ruby", {"code": code}, context)


@server.tool()
def eval_ruby_file(context: Context, file_path: str) -> str:
    return call("eval_ruby_file", {"file_path": file_path}, context)


@server.tool()
def get_model_info(context: Context) -> str:
    return call("get_model_info", {}, context)


@server.tool()
def check_sketchup_status(context: Context) -> str:
    return call("ping", {}, context)


if __name__ == "__main__":
    server.run()
