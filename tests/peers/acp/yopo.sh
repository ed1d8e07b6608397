#!/usr/bin/env bash
# yopo as a client: an old Rust client, which prompts once, allows everything and ends at an update that it does not know. So
# the settings turn `usage_update` off. Usage: yopo.sh YOPO PARLOR FOLDER
set -euo pipefail
yopo=$1 parlor=$2
cd "$3"
if [ ! -x "$yopo" ]; then
  echo "acp: skipped yopo: $yopo does not exist; scripts/peers.sh builds it"
  exit 0
fi
printf '\n[acp]\nusage_updates = false\n' >>"$PARLOR_HOME/parlor.toml"

# expect TEXT PROMPT
expect() {
  local said
  said=$("$yopo" "$2" "$parlor" stdio acp </dev/null 2>&1) || { echo "acp: yopo failed at $2: $said" >&2; exit 1; }
  grep -q -- "$1" <<<"$said" || { echo "acp: yopo printed no $1, but: $said" >&2; exit 1; }
}
expect 'a word' '/say a word'
# The policy asks, and yopo allows it.
expect '42 from the tool' '!echo $((6 * 7)) from the tool'
expect 'I have thought about it' '/think over it'
echo "acp: yopo held its conversation"
