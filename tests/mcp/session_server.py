"""An MCP server of 2025-11-25 over HTTP that forgets its session after the first call. Prints its port, then each method that it gets."""
import http.server, json

SESSIONS, FORGOTTEN, CALLS = [], set(), []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, request=None, session=None, **members):
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **members}).encode() if request else b""
        self.send_response(status)
        if session:
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        self.answer(202)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, session = request.get("method"), self.headers.get("Mcp-Session-Id")
        if method == "server/discover":
            return self.answer(400, request, error={"code": -32601, "message": "no"})
        print(method, session, flush=True)
        if method == "initialize":
            SESSIONS.append(f"session-{len(SESSIONS) + 1}")
            info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
            return self.answer(200, request, SESSIONS[-1], result=info)
        if session in FORGOTTEN:
            return self.answer(404)
        if "id" not in request:
            return self.answer(202)
        if method == "tools/list":
            return self.answer(200, request, result={"tools": [{"name": "count", "inputSchema": {"type": "object"}}]})
        CALLS.append(session)
        if len(CALLS) == 1:
            FORGOTTEN.add(session)
        self.answer(200, request, result={"content": [{"type": "text", "text": f"call {len(CALLS)}"}]})


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
