#!/usr/bin/env bash
# Installs the peer that `make bench` measures against; with --path prints where its program is.
set -euo pipefail
cd "$(dirname "$0")/../bench"

if [ ! -f node_modules/.package-lock.json ]; then
  echo "bench: installing the peer, npm package @openai/codex" >&2
  npm ci --loglevel=error --no-audit --no-fund >/dev/null
fi
program=$(find node_modules/@openai -type f -name codex -perm -u+x -print -quit)
if [ -z "$program" ]; then
  echo "bench: the npm package @openai/codex has no program for this machine" >&2
  exit 1
fi
[ "${1:-}" != --path ] || echo "$PWD/$program"
