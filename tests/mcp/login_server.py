"""An MCP server that wants a login, and its authorization server, on loopback. Prints its port.

`/revoke` makes the access token invalid; the next one comes with a refresh token.
"""
import base64, hashlib, json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

STATE = {"access": 0, "challenges": {}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=None, **headers):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(text)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()

    def do_GET(self):
        own, url = f"http://{self.headers['Host']}", urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/.well-known/oauth-protected-resource/mcp":
            return self.reply(200, {"resource": f"{own}/mcp", "authorization_servers": [own]})
        if url.path == "/.well-known/oauth-authorization-server":
            return self.reply(200, {
                "issuer": own, "authorization_endpoint": f"{own}/authorize", "token_endpoint": f"{own}/token",
                "registration_endpoint": f"{own}/register", "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            })
        if url.path == "/authorize" and query["resource"] == f"{own}/mcp" and query["client_id"] == "registered":
            STATE["challenges"]["the-code"] = query["code_challenge"]
            answer = urlencode({"code": "the-code", "state": query["state"], "iss": own})
            return self.reply(302, None, Location=f"{query['redirect_uri']}?{answer}")
        if url.path == "/revoke":
            STATE["access"] += 1
            return self.reply(200, {})
        self.reply(404)

    def do_POST(self):
        own, body = f"http://{self.headers['Host']}", self.body()
        if self.path == "/register":
            return self.reply(201, {"client_id": "registered", "redirect_uris": json.loads(body)["redirect_uris"]})
        if self.path == "/token":
            form = {name: values[0] for name, values in parse_qs(body).items()}
            if form["grant_type"] == "authorization_code":
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                is_right = STATE["challenges"].pop(form["code"], None) == challenge
            else:
                is_right = form["refresh_token"] == "refresh-of-the-user"
            if not is_right or form.get("resource") != f"{own}/mcp":
                return self.reply(400, {"error": "invalid_grant"})
            return self.reply(200, {
                "access_token": f"access-number-{STATE['access']}", "refresh_token": "refresh-of-the-user",
                "token_type": "Bearer", "expires_in": 3600,
            })
        if self.headers.get("Authorization") != f"Bearer access-number-{STATE['access']}":
            metadata = f"{own}/.well-known/oauth-protected-resource/mcp"
            return self.reply(401, None, WWW_Authenticate=f'Bearer resource_metadata="{metadata}", scope="files:read"')
        request = json.loads(body)
        if "id" not in request:
            return self.reply(202)
        results = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "locked", "version": "1"}},
            "tools/list": {"tools": [{"name": "secret_tool", "inputSchema": {"type": "object"}}]},
        }
        answer = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] in results:
            return self.reply(200, {**answer, "result": results[request["method"]]})
        self.reply(400, {**answer, "error": {"code": -32601, "message": "no"}})


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
