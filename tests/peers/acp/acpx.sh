#!/usr/bin/env bash
# acpx as a client: a session, a tool that is allowed and one that is refused, a cancelled turn, a chosen model, and the
# session in a second process. The policy must ask about `shell`. Usage: acpx.sh PARLOR FOLDER, with acpx in PATH and a HOME of its own
set -euo pipefail
parlor=$1
cd "$2"

acpx_with() { command acpx --agent "$parlor stdio acp" "$@" 2>>"$HOME/acpx.log"; }
acpx() { acpx_with --approve-all --ttl 60 "$@"; }
expect() {
  grep -q -- "$1" <<<"$2" || { echo "acp: acpx printed no $1, but:" >&2; echo "$2" >&2; exit 1; }
}
trap 'acpx sessions close >/dev/null || true' EXIT

acpx sessions new >/dev/null
expect 'from the tool' "$(acpx prompt '!echo from the tool')"
# The process that keeps the session has its own answer to permissions, so this one needs a process without a session.
expect 'the user refused this call' "$(acpx_with --deny-all exec '!echo refused' || true)"
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
