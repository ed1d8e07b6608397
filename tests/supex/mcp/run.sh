#!/bin/sh
# Drives `parlor serve` through the MCP package of PyPI (below version 2). Needs Python and the network,
# once. Usage: run.sh PARLOR
set -eu
parlor=$1
here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../../target/mcp
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import mcp' 2>/dev/null || "$venv/bin/pip" install --quiet --disable-pip-version-check 'mcp<2'
home=$(mktemp -d)
PARLOR_HOME=$home "$parlor" serve --no-http --supex 127.0.0.1:0 --supex-repl 127.0.0.1:0 &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$home"' EXIT
tries=0
until [ -f "$home/serve.json" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || { echo "parlor does not serve" >&2; exit 1; }
    sleep 0.1
done
SUPEX_HOST=127.0.0.1
SUPEX_PORT=$(sed 's/.*"supex":"[^"]*:\([0-9]*\)".*/\1/' "$home/serve.json")
export SUPEX_HOST SUPEX_PORT
timeout 120 "$venv/bin/python" "$here/drive.py"
