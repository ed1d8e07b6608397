#!/usr/bin/env python3
"""A client for the conformance suite: logs in to the server at the last argument, and uses its tools. Needs $PARLOR.

Where parlor says that another login is needed, it names the command, and this program runs it as a user would.
"""
import json, os, re, shlex, subprocess, sys, tempfile, urllib.request

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
# The address of a document that describes the client, where the authorization server fetches it.
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
HOME = tempfile.mkdtemp()
ENV = {**os.environ, "PARLOR_HOME": HOME, "CI": "1", "SUITE_SECRET": CONTEXT.get("client_secret", "")}
PARLOR = os.environ["PARLOR"]


def run(*args):
    done = subprocess.run([PARLOR, *args], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, flush=True)
    return done


def log_in(*options):
    """The suite's authorization server agrees at once, so following its redirects is all that a browser would do."""
    with subprocess.Popen([PARLOR, "mcp", "login", "suite", *options], env=ENV, stdout=subprocess.PIPE, text=True) as login:
        address = login.stdout.readline().strip()
        if address.startswith("http"):
            try:
                urllib.request.urlopen(address, timeout=10).read()
            except OSError as error:
                print(error)
        print(login.stdout.read())
    return login.returncode == 0


def advised(done):
    """The options of the login that parlor asks for; `None` if it asks for none."""
    advice = re.search(r"run: parlor mcp login suite((?: --scope [^\s;,.\"\\]+)*)", done.stdout)
    return advice and shlex.split(advice[1])


def use():
    if SCENARIO == "auth/scope-step-up":
        return run("chat", "--agent", "demo", "--json", "go")
    return run("mcp", "test", "suite")


options = []
if "client_id" in CONTEXT:
    options = ["--client-id", CONTEXT["client_id"], "--client-secret-env", "SUITE_SECRET"]
if SCENARIO == "auth/basic-cimd":
    options = ["--client-id", CLIENT_DOCUMENT]
with open(f"{HOME}/demo.toml", "w") as file:
    file.write('[otherwise]\nsteps = [{ tool = "suite__test-tool", args = {} }]\n')
with open(f"{HOME}/parlor.toml", "w") as file:
    file.write('[agents.demo]\nkind = "script"\nfile = "demo.toml"\n')
run("mcp", "add", "suite", sys.argv[-1])
if SCENARIO == "auth/scope-step-up":
    options = advised(run("mcp", "test", "suite"))  # this server names a scope only to who asks for its tools
if not log_in(*options):
    sys.exit(1)
for _ in range(2):
    used = use()
    more = advised(used)
    if more is None:
        sys.exit(used.returncode)
    if not log_in(*options, *more):
        sys.exit(1)
sys.exit(use().returncode)
