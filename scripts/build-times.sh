#!/usr/bin/env bash
# Measures how long builds take from nothing, and after a change, and how large the program is. Takes most of an hour on two
# cores; the machine should do nothing else. Prints rows for bench/BUILD.md.
# usage: scripts/build-times.sh [PROFILE…]      (default: dev quick release)
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build-page.sh
cargo fetch --locked --quiet
folder=$(mktemp -d "$PWD/target/build-times-XXXXXX")
trap 'rm -rf "$folder"' EXIT
# Changes a crate as an edit does, without changing its text.
edit() { touch crates/engine/src/lib.rs; }
seconds() { local start=$SECONDS; "$@" >&2; echo $((SECONDS - start)); }

echo "| profile | from nothing, s | after a change in engine, s | program, bytes | without symbols |"
echo "|---|---|---|---|---|"
[ $# -gt 0 ] || set -- dev quick release
for profile in "$@"; do
  build=(cargo build --locked --offline --quiet --profile "$profile" --target-dir "$folder" -p parlor)
  first=$(seconds "${build[@]}")
  edit
  again=$(seconds "${build[@]}")
  program=$folder/${profile/#dev/debug}/parlor
  strip -o "$folder/stripped" "$program"
  echo "| $profile | ${first:-0} | ${again:-0} | $(stat -c %s "$program") | $(stat -c %s "$folder/stripped") |"
  rm -rf "${folder:?}"/*
done
