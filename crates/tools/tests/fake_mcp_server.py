"""An MCP server of 2025-11-25 for tests. Its arguments are the ways in which it misbehaves."""
import json, os, sys, threading, time

WAYS = dict(way.split("=", 1) if "=" in way else (way, "") for way in sys.argv[1:])
LOCK = threading.Lock()
CANCELLED = threading.Event()
FLOODS = {
    "ping": lambda n: json.dumps({"jsonrpc": "2.0", "id": n, "method": "ping"}),
    "notification": lambda n: json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": n}}),
    "answer": lambda n: json.dumps({"jsonrpc": "2.0", "id": 1_000_000 + n, "result": {}}),
    "banner": lambda n: "loading",
}
LISTS = []
EXTRA = []


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def deep(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def tools():
    names = ["echo", "wait", "die", "large", "steps", "picture", "refuse", "env", "more", "cancelled", "flood", "rich"] + EXTRA
    listed = [{"name": name, "description": "Does " + name, "inputSchema": {"type": "object"}} for name in names]
    if "deep" in WAYS:
        listed.append({"name": "deep", "inputSchema": deep(int(WAYS["deep"]))})
    if "many" in WAYS:
        listed += [{"name": f"extra_{n}", "description": f"tool number {n}", "inputSchema": {"type": "object"}} for n in range(200)]
    if "read_only" in WAYS:
        listed = [{**tool, "annotations": {"readOnlyHint": True}} for tool in listed]
    if "lies" in WAYS:
        listed = [{"name": 5, "inputSchema": True}]
    return listed


def text(value, **others):
    return {"content": [{"type": "text", "text": value}], **others}


def call(request):
    params, number = request["params"], request["id"]
    name, arguments = params["name"], params.get("arguments", {})
    if name == "echo":
        result = text(json.dumps(arguments))
    elif name == "wait":
        time.sleep(600)
        return
    elif name == "die":
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(3)
    elif name == "large":
        result = text("x" * arguments["bytes"])
    elif name == "steps":
        token = params.get("_meta", {}).get("progressToken")
        for step in range(1, 7):
            time.sleep(0.4)
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step, "total": 6}})
        result = text("done")
    elif name == "picture":
        result = {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}
    elif name == "rich":
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        link = {"type": "resource_link", "uri": "file:///x", "name": "x"}
        result = {"content": [{"type": "text", "text": "rich"}, image, link], "structuredContent": {"answer": 42}}
    elif name == "refuse":
        result = text("not like this", isError=True)
    elif name == "env":
        result = text(os.environ.get(arguments["name"], "unset"))
    elif name == "more":
        EXTRA.append("later")
        send({"method": "notifications/tools/list_changed"})
        result = text("ok")
    elif name == "flood":
        kind, count = arguments["kind"], arguments.get("count", 1_000_000)
        with LOCK:
            for position in range(count):
                sys.stdout.write(FLOODS[kind](position) + "\n")
            sys.stdout.flush()
        result = text("sent")
    elif name == "cancelled":
        result = text(str(CANCELLED.wait(20)))
    else:
        result = text(name)
    send({"id": number, "result": result})


def handle(request):
    method, number = request.get("method"), request.get("id")
    if method == "server/discover":
        answer = WAYS.get("discover", "-32601")
        if answer == "exit":
            os._exit(0)
        if answer == "garbage":
            print("what?", flush=True)
            os._exit(0)
        if answer == "later":
            data = {"supported": ["2027-01-01"], "requested": "2026-07-28"}
            return send({"id": number, "error": {"code": -32022, "message": "no", "data": data}})
        return send({"id": number, "error": {"code": int(answer), "message": "no"}})
    if method == "initialize":
        info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "fake", "version": "1"}}
        return send({"id": number, "result": info})
    if method == "tools/list":
        LISTS.append(number)
        if "hang_list" in WAYS and len(LISTS) > 1:
            with open(WAYS["hang_list"], "w") as file:
                file.write("asked\n")
            return
        return send({"id": number, "result": {"tools": tools()}})
    if method == "tools/call":
        return threading.Thread(target=call, args=(request,), daemon=True).start()
    if method == "notifications/cancelled":
        return CANCELLED.set()
    if number is not None and method is not None:
        send({"id": number, "error": {"code": -32601, "message": method}})


if "banner" in WAYS:
    print("Fake server is ready!", flush=True)
if "dead" in WAYS:
    sys.stderr.write("no configuration found\n")
    sys.exit(1)
if "stderr" in WAYS:
    sys.stderr.write("e" * (1 << 20))
    sys.stderr.flush()
if "pid" in WAYS:
    with open(WAYS["pid"], "a") as file:
        file.write(f"{os.getpid()}\n")
for line in sys.stdin:
    handle(json.loads(line))
