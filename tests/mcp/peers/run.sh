#!/bin/sh
# Tests the MCP door with the conformance suite, the Inspector, the Python client and the TypeScript client, and the client of MCP servers with
# servers that others published. Installs them, once. Usage: run.sh PARLOR
set -eu
parlor=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../../target/mcp-peers
mkdir -p "$root"
root=$(cd "$root" && pwd)
if ! cmp -s "$here/package.json" "$root/package.json"; then
    cp "$here/package.json" "$root/package.json"
    (cd "$root" && npm install --loglevel=error --no-audit --no-fund >/dev/null)
fi
[ -x "$root/python/bin/python" ] || python3 -m venv "$root/python"
"$root/python/bin/python" -c 'import mcp' 2>/dev/null \
    || "$root/python/bin/pip" install --quiet --disable-pip-version-check 'mcp==2.3.0' 'mcp-server-time==2026.10.19' \
        'mcp-server-git==2026.10.19' 'mcp-server-fetch==2026.10.24'
PATH=$root/node_modules/.bin:$PATH
export PATH

home=$(mktemp -d)
export PARLOR_HOME="$home/state"
cd "$home"
"$parlor" serve --listen 127.0.0.1:0 --no-supex 2>/dev/null &
server=$!
proxy=
trap 'kill $server $proxy 2>/dev/null; wait $server || true; rm -rf "$home"' EXIT
tries=0
until [ -f "$PARLOR_HOME/serve.json" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || { echo "parlor does not serve" >&2; exit 1; }
    sleep 0.1
done
port=$(sed 's/.*"http":"[^"]*:\([0-9]*\)[^"0-9]*".*/\1/' "$PARLOR_HOME/serve.json")
token=$("$parlor" token)

timeout 120 "$root/python/bin/python" "$here/drive.py" "$parlor" "http://127.0.0.1:$port" "$token"
cp "$here/drive.mjs" "$root/drive.mjs" # it finds its packages there
timeout 120 node "$root/drive.mjs" "$parlor" "http://127.0.0.1:$port" "$token"
inspect() {
    timeout 60 mcp-inspector --cli "$@" --method tools/list > "$home/inspected"
    grep -q session_start "$home/inspected"
    timeout 60 mcp-inspector --cli "$@" --method tools/call --tool-name list_dir --tool-arg path=. > "$home/inspected"
    grep -q '"content"' "$home/inspected"
}
inspect "$parlor" stdio mcp
echo "inspector on stdio: lists and calls tools"
inspect "http://127.0.0.1:$port/mcp" --transport http --header "Authorization: Bearer $token"
echo "inspector over HTTP: lists and calls tools"

# The suite knows no tokens.
python3 "$here/token_proxy.py" "$port" "$token" > "$home/proxy" &
proxy=$!
until [ -s "$home/proxy" ]; do sleep 0.1; done
url=http://127.0.0.1:$(cat "$home/proxy")/mcp
grep -v '^#' "$here/scenarios.txt" > "$home/scenarios"
while read -r scenario version checks; do
    timeout 60 conformance server --url "$url" --scenario "$scenario" --spec-version "$version" -o "$home/out" \
        > "$home/log" 2>&1 || true
    if grep -q "Passed: $checks," "$home/log"; then
        echo "conformance: $scenario $version: $checks checks passed"
    else
        grep -a "Passed:\|Error:" "$home/log" || tail -20 "$home/log"
        echo "conformance: $scenario $version: not $checks checks passed" >&2
        exit 1
    fi
done < "$home/scenarios"

# Logins: the suite is the server and the authorization server.
export PARLOR="$parlor"
grep -v '^#' "$here/login_scenarios.txt" > "$home/scenarios"
while read -r scenario version checks; do
    if timeout 60 conformance client --command "$here/login_client.sh" --scenario "$scenario" --spec-version "$version" \
        -o "$home/out" > "$home/log" 2>&1 < /dev/null && grep -q "Passed: $checks," "$home/log"; then
        echo "conformance: $scenario $version: $checks checks passed"
    else
        tail -20 "$home/log"
        echo "conformance: $scenario $version: not $checks checks passed" >&2
        exit 1
    fi
done < "$home/scenarios"

# Servers that others published.
git init --quiet "$home/repo"
cat > "$PARLOR_HOME/parlor.toml" <<EOF
[agents.demo]
kind = "script"
file = "demo.toml"
[mcp.everything]
command = "mcp-server-everything"
tools = ["echo"] # together they have more tools than a model is shown
[mcp.files]
command = "mcp-server-filesystem"
args = ["$home"]
[mcp.memory]
command = "mcp-server-memory"
[mcp.thinking]
command = "mcp-server-sequential-thinking"
[mcp.time]
command = "$root/python/bin/mcp-server-time"
[mcp.git]
command = "$root/python/bin/mcp-server-git"
[mcp.fetch]
command = "$root/python/bin/mcp-server-fetch"
[mcp.self]
command = "$parlor"
args = ["stdio", "mcp"]
env = { PARLOR_HOME = "$home/other" }
EOF
timeout 120 "$parlor" mcp test
cat > "$PARLOR_HOME/demo.toml" <<EOF
[[on]]
match = "go"
steps = [
  { tool = "everything__echo", args = { message = "hi" } },
  { tool = "files__list_directory", args = { path = "." } },
  { tool = "memory__read_graph", args = {} },
  { tool = "thinking__sequentialthinking", args = { thought = "t", nextThoughtNeeded = false, thoughtNumber = 1, totalThoughts = 1 } },
  { tool = "time__get_current_time", args = { timezone = "UTC" } },
  { tool = "git__git_status", args = { repo_path = "$home/repo" } },
  { tool = "self__session_start", args = { message = "/say hello" } },
]
EOF
completed=$(timeout 120 "$parlor" chat --agent demo --json go | grep -c '"type":"tool.completed"')
echo "parlor chat: $completed of 7 calls of published servers completed"
[ "$completed" = 7 ]
