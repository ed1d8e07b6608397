#!/usr/bin/env bash
# Runs one scenario against `parlor serve` with third-party clients: `websockets` (PyPI), `ws` (npm) and a browser; then compares
# the HTTP API with its description, with `schemathesis` (PyPI).
# Installs them on the first call. Usage: run.sh PARLOR
set -euo pipefail
parlor=$(realpath "$1")
cd "$(dirname "$0")"
venv=../../target/clients

if ! command -v chromium >/dev/null; then
  echo "clients: installing Debian's chromium (once)"
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends chromium >/dev/null
fi
[ -f node_modules/.package-lock.json ] || npm ci --loglevel=error --no-audit --no-fund >/dev/null
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import websockets, schemathesis' 2>/dev/null ||
  "$venv/bin/pip" install --quiet --disable-pip-version-check 'websockets>=15' 'schemathesis>=4,<5'

home=$(mktemp -d)
PARLOR_HOME=$home "$parlor" serve --listen 127.0.0.1:0 --no-supex >/dev/null &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$home"' EXIT
for _ in $(seq 200); do
  [ -f "$home/serve.json" ] && break
  sleep 0.1
done
address=$(sed 's/.*"http":"\([^"]*\)".*/\1/' "$home/serve.json")
token=$(PARLOR_HOME=$home "$parlor" token)
base=ws://$address/supr/ws
timeout 120 "$venv/bin/python" websockets_client.py "$base" "$token"
timeout 120 node ws.mjs "$base" "$token"
timeout 120 node browser.mjs "$address" "$token" "$(command -v chromium)"

# schemathesis leaves files in its working folder.
venv=$(realpath "$venv")
cd "$home"
# Not checked: another method on a known path, which is 404 as in SuprClaw, and the handshakes of WebSockets.
timeout 300 "$venv/bin/schemathesis" run "http://$address/api/openapi.json" -H "Authorization: Bearer $token" \
  --phases examples,coverage,fuzzing --max-examples 60 --exclude-checks unsupported_method --exclude-path-regex '/ws$' \
  >"$home/schemathesis.txt" 2>&1 || { cat "$home/schemathesis.txt"; exit 1; }
echo "schemathesis: the API agrees with its description"
