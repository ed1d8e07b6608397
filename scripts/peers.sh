#!/usr/bin/env bash
# Installs the published programs that transcripts are compared with, once, into target/peers.
# Their builds are long, which is why `make test` does not need them.
set -euo pipefail
cd "$(dirname "$0")/.."

synaps_version=0.11.1
root=$PWD/target/peers
if ! "$root/bin/synaps" --version 2>/dev/null | grep -q "$synaps_version"; then
  echo "peers: building synaps $synaps_version (many minutes, once)"
  cargo install --quiet --locked --root "$root" --target-dir "$root/build" "synaps@$synaps_version"
  rm -rf "$root/build"
fi
echo "peers: $("$root/bin/synaps" --version)"
