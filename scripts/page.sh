#!/usr/bin/env bash
# Checks the page: its types, its units, and with a browser every screen of it against a real server.
# usage: scripts/page.sh PARLOR_BINARY [a test file of tests/page …]
set -euo pipefail
binary=$(realpath "$1")
shift
cd "$(dirname "$0")/.."

chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
if [ -z "$chromium" ]; then
  echo "page: installing chromium"
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends chromium >/dev/null
  chromium=$(command -v chromium)
fi
# npm writes this file last: a folder without it was never finished, and an older one lacks something.
for folder in web tests/page; do
  if [ ! "$folder/node_modules/.package-lock.json" -nt "$folder/package-lock.json" ]; then
    echo "page: installing npm packages for $folder"
    npm ci --loglevel=error --no-audit --no-fund --prefix "$folder" >/dev/null
    touch "$folder/node_modules/.package-lock.json"
  fi
done

npm run --silent --prefix web check
npm run --silent --prefix web test -- --reporter=dot
cd tests/page
[ $# -gt 0 ] || set -- *.test.mjs
PARLOR_BINARY=$binary CHROMIUM=$chromium node --test --test-concurrency=2 --test-reporter=dot "$@"
