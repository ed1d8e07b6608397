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
# Each program has an environment of its own, because some want another version of the package `mcp`.
python_program() {
    name=${1%%==*}
    [ -x "$root/$name/bin/python" ] || python3 -m venv "$root/$name"
    [ -f "$root/$name/installed-$1" ] || {
        "$root/$name/bin/pip" install --quiet --disable-pip-version-check "$@"
        touch "$root/$name/installed-$1"
    }
}
for program in mcp==2.3.0 mcp-server-time==2026.10.19 mcp-server-git==2026.10.19 mcp-server-fetch==2026.10.24; do
    python_program "$program"
done
for program in mcp-server-sqlite==2025.4.25 mcp-server-calculator==0.2.1 mcp-text-editor==1.0.2; do
    python_program "$program" 'mcp<2' # they do not say that they need it
done
PATH=$root/node_modules/.bin:$PATH
export PATH

home=$(mktemp -d)
export PARLOR_HOME="$home/state"
cd "$home"
"$parlor" serve --listen 127.0.0.1:0 --no-supex 2>/dev/null &
server=$!
proxy='' site='' model=''
trap 'kill $server $proxy $site $model 2>/dev/null; wait $server || true; rm -rf "$home"' EXIT
tries=0
until [ -f "$PARLOR_HOME/serve.json" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || { echo "parlor does not serve" >&2; exit 1; }
    sleep 0.1
done
port=$(sed 's/.*"http":"[^"]*:\([0-9]*\)[^"0-9]*".*/\1/' "$PARLOR_HOME/serve.json")
token=$("$parlor" token)

timeout 120 "$root/mcp/bin/python" "$here/drive.py" "$parlor" "http://127.0.0.1:$port" "$token"
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

# parlor as a client: the suite is the server, and the authorization server.
export PARLOR="$parlor"
clients() {
    grep -v '^#' "$here/$2" > "$home/scenarios"
    while read -r scenario version checks; do
        if timeout 60 conformance client --command "$here/$1" --scenario "$scenario" --spec-version "$version" \
            -o "$home/out" > "$home/log" 2>&1 < /dev/null && grep -q "Passed: $checks," "$home/log"; then
            echo "conformance: $scenario $version: $checks checks passed"
        else
            tail -20 "$home/log"
            echo "conformance: $scenario $version: not $checks checks passed" >&2
            exit 1
        fi
    done < "$home/scenarios"
}
clients tool_client.py tool_scenarios.txt
clients login_client.py login_scenarios.txt

# Servers that others published, used by a model.
git init --quiet "$home/repo"
mkdir "$home/site"
echo "a page" > "$home/site/page.txt"
python3 -u -m http.server --bind 127.0.0.1 --directory "$home/site" 0 > "$home/site.log" 2>&1 &
site=$!
wait_for() {
    tries=0
    until grep -q "$2" "$1" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || { echo "$1 never has $2" >&2; exit 1; }
        sleep 0.1
    done
}
wait_for "$home/site.log" "port [0-9]"
site_port=$(sed -n 's/.* port \([0-9]*\).*/\1/p' "$home/site.log")
cat > "$home/fixtures.json" <<EOF
{ "fixtures": [
  { "match": { "userMessage": "use all of them", "hasToolResult": true }, "response": { "content": "All of them answered." } },
  { "match": { "userMessage": "use all of them" }, "response": { "toolCalls": [
    { "id": "c1", "name": "everything__echo", "arguments": { "message": "hi" } },
    { "id": "c2", "name": "files__list_directory", "arguments": { "path": "$home" } },
    { "id": "c3", "name": "memory__read_graph", "arguments": {} },
    { "id": "c4", "name": "thinking__sequentialthinking",
      "arguments": { "thought": "t", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1 } },
    { "id": "c5", "name": "hello__echo", "arguments": { "message": "hi" } },
    { "id": "c6", "name": "time__get_current_time", "arguments": { "timezone": "UTC" } },
    { "id": "c7", "name": "git__git_status", "arguments": { "repo_path": "$home/repo" } },
    { "id": "c8", "name": "fetch__fetch", "arguments": { "url": "http://127.0.0.1:$site_port/page.txt" } },
    { "id": "c9", "name": "sqlite__list_tables", "arguments": {} },
    { "id": "c10", "name": "calculator__calculate", "arguments": { "expression": "20 + 3" } },
    { "id": "c11", "name": "editor__get_text_file_contents",
      "arguments": { "files": [{ "file_path": "$home/site/page.txt", "ranges": [{ "start": 1 }] }] } },
    { "id": "c12", "name": "self__session_start", "arguments": { "message": "/say hello" } }
  ] } }
] }
EOF
cp "$here/model.mjs" "$root/model.mjs"
node "$root/model.mjs" "$home/fixtures.json" > "$home/model" &
model=$!
wait_for "$home/model" http
cat > "$PARLOR_HOME/parlor.toml" <<EOF
[models.mock]
provider = "openai"
model = "mock"
base_url = "$(cat "$home/model")/v1"
[agents.demo]
kind = "model"
model = "mock"
[policy]
allow = [{ tool = "*" }]
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
[mcp.hello]
command = "mcp-hello-world"
[mcp.time]
command = "$root/mcp-server-time/bin/mcp-server-time"
[mcp.git]
command = "$root/mcp-server-git/bin/mcp-server-git"
[mcp.fetch]
command = "$root/mcp-server-fetch/bin/mcp-server-fetch"
args = ["--ignore-robots-txt", "--allow-private-ips"]
[mcp.sqlite]
command = "$root/mcp-server-sqlite/bin/mcp-server-sqlite"
args = ["--db-path", "$home/test.db"]
[mcp.calculator]
command = "$root/mcp-server-calculator/bin/mcp-server-calculator"
[mcp.editor]
command = "$root/mcp-text-editor/bin/mcp-text-editor"
[mcp.self]
command = "$parlor"
args = ["stdio", "mcp"]
env = { PARLOR_HOME = "$home/other" }
tools = ["session_start"]
EOF
timeout 120 "$parlor" mcp test
OPENAI_API_KEY=none timeout 120 "$parlor" chat --agent demo --json "use all of them" > "$home/chat"
completed=$(grep -c '"type":"tool.completed"' "$home/chat") || true
echo "parlor chat with a model: $completed of 12 calls of published servers completed"
[ "$completed" = 12 ] || { grep '"type":"tool.failed"' "$home/chat" >&2; exit 1; }
grep -q "All of them answered" "$home/chat"
grep '"type":"tool.completed"' "$home/chat" | grep -q '"output":"23"'
