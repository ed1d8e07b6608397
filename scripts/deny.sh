#!/usr/bin/env bash
# `make deny`: the dependencies. Bans, licences and sources are checked always; known vulnerabilities where their database
# can be had. It is fetched if the network lets us, and else an earlier copy is taken; without one, a line says that
# nothing was checked. A machine without a network neither fails nor waits for long.
set -euo pipefail
cd "$(dirname "$0")/.."

# How long fetching the database may take, in seconds.
fetch_seconds=60

cargo deny --log-level error check bans licenses sources

said=$(mktemp)
trap 'rm -f "$said"' EXIT

skipped() {
  echo "deny: known vulnerabilities are NOT checked: $1"
  exit 0
}

# Nobody is there to be asked for a password.
fetch=(timeout --kill-after=5 "$fetch_seconds" cargo deny --log-level error fetch db)
fetched=yes
if ! GIT_TERMINAL_PROMPT=0 "${fetch[@]}" >"$said" 2>&1; then
  fetched=no
  copies=("${CARGO_HOME:-$HOME/.cargo}"/advisory-dbs/*/.git/HEAD)
  [ -e "${copies[0]}" ] || skipped "their database cannot be fetched, and there is no copy of it"
fi
if cargo deny --offline --log-level error check advisories 2>"$said"; then
  exit 0
fi
# A copy that cannot be used says nothing about us; a finding begins with its number in brackets.
if [ "$fetched" = no ] && ! grep -q '^error\[' "$said"; then
  skipped "their database cannot be fetched, and the copy cannot be used"
fi
cat "$said" >&2
exit 1
