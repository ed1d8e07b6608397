#!/usr/bin/env bash
# Builds the page, web/, into web/dist, from where cargo takes it. Quiet when there is nothing to do. Without npm the
# program is built without its page, and works but for that.
set -euo pipefail
cd "$(dirname "$0")/../web"

if ! command -v npm >/dev/null; then
  echo "page: npm is missing, so the page is left out; to have it: apt-get install nodejs npm"
  exit 0
fi
# npm writes this file last: a folder without it was never finished.
if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
  echo "page: installing npm packages for web"
  npm ci --loglevel=error --no-audit --no-fund --no-update-notifier >/dev/null
  touch node_modules/.package-lock.json
fi
# Folders are looked at too: a file that is gone makes its folder newer.
newer() { find . -mindepth 1 \( -path ./node_modules -o -path ./dist \) -prune -o -newer dist/index.html -print -quit; }
if [ ! -f dist/index.html ] || [ -n "$(newer)" ]; then
  echo "page: building web/dist"
  npm run --silent build >/dev/null
fi
