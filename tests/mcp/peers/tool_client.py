#!/usr/bin/env python3
"""A client for the conformance suite: an agent calls the tools of the server at the last argument. Needs $PARLOR."""
import json, os, subprocess, sys, tempfile

CALLS = {
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "sse-retry": [("test_reconnection", {})],
    "http-standard-headers": [("test_headers", {})],
    "http-invalid-tool-headers": [("valid_tool", {"region": "us-west1"})],
}


def toml(value):
    """A value as TOML, which takes JSON's texts and numbers. It has no null, so such a member is left out."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items() if v is not None) + "}"
    return json.dumps(value, ensure_ascii=False)


context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
calls = [(call["name"], call["arguments"]) for call in context.get("toolCalls", [])]
calls = calls or CALLS.get(os.environ["MCP_CONFORMANCE_SCENARIO"], [])
home = tempfile.mkdtemp()
steps = ", ".join(f"{{ tool = {json.dumps('suite__' + name)}, args = {toml(arguments)} }}" for name, arguments in calls)
with open(f"{home}/demo.toml", "w") as file:
    file.write(f"[otherwise]\nsteps = [{steps}]\n")
with open(f"{home}/parlor.toml", "w") as file:
    file.write(f'[agents.demo]\nkind = "script"\nfile = "demo.toml"\n[mcp.suite]\nurl = {json.dumps(sys.argv[-1])}\n')
env = {**os.environ, "PARLOR_HOME": home, "CI": "1"}
parlor = os.environ["PARLOR"]
if calls:
    subprocess.run([parlor, "chat", "--agent", "demo", "--json", "go"], env=env, check=True)
else:
    subprocess.run([parlor, "mcp", "test"], env=env, check=True)
