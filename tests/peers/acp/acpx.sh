#!/usr/bin/env bash
# acpx as a client: a session, a tool, a cancelled turn, a chosen model, and the session in a second process.
# Usage: acpx.sh PARLOR FOLDER, with acpx in PATH and a HOME of its own
set -euo pipefail
parlor=$1
cd "$2"

acpx() { command acpx --agent "$parlor stdio acp" --approve-all --ttl 60 "$@" 2>>"$HOME/acpx.log"; }
expect() {
  grep -q -- "$1" <<<"$2" || { echo "acp: acpx printed no $1, but:" >&2; echo "$2" >&2; exit 1; }
}
trap 'acpx sessions close >/dev/null || true' EXIT

acpx sessions new >/dev/null
expect 'from the tool' "$(acpx prompt '!echo from the tool')"
expect 'model set: local' "$(acpx set model local)"
# It prints a dot every 100 ms.
acpx prompt '/wait 600' >"$HOME/turn.txt" &
turn=$!
until grep -qs '^\.\.' "$HOME/turn.txt"; do
  kill -0 $turn || { cat "$HOME/turn.txt" >&2; exit 1; }
  sleep 0.1
done
acpx cancel >/dev/null
wait $turn || true
expect cancelled "$(cat "$HOME/turn.txt")"
# The process that keeps the session ends; the next prompt starts parlor again and resumes the session.
kill "$(acpx status | sed -n 's/^pid: //p')"
expect 'and again' "$(acpx prompt '/say and again')"
echo "acp: acpx held its conversation"
