#!/usr/bin/env bash
# Installs the published programs that parlor is compared with, each once, into target/peers/bin: `synaps` (crates.io) and
# `codex` (npm). The build of `synaps` is long, which is why `make test` does not need them.
set -euo pipefail
cd "$(dirname "$0")/.."

synaps_version=0.11.1
root=$PWD/target/peers
mkdir -p "$root/bin"

if ! "$root/bin/synaps" --version 2>/dev/null | grep -q "$synaps_version"; then
  echo "peers: building synaps $synaps_version (many minutes, once)"
  cargo install --quiet --locked --root "$root" --target-dir "$root/build" "synaps@$synaps_version"
  rm -rf "$root/build"
fi

# The version is in bench/package.json.
if ! cmp -s bench/package-lock.json "$root/codex/package-lock.json" || [ ! -x "$root/bin/codex" ]; then
  echo "peers: installing the npm package @openai/codex"
  mkdir -p "$root/codex"
  cp bench/package.json bench/package-lock.json "$root/codex"
  (cd "$root/codex" && npm ci --loglevel=error --no-audit --no-fund >/dev/null)
  program=$(find "$root/codex/node_modules/@openai" -type f -name codex -perm -u+x -print -quit)
  if [ -z "$program" ]; then
    echo "peers: the npm package @openai/codex has no program for this machine" >&2
    exit 1
  fi
  ln -sfn "$program" "$root/bin/codex"
fi
# Even for its version, codex writes into its home.
echo "peers: $("$root/bin/synaps" --version), $(CODEX_HOME=$root/codex "$root/bin/codex" --version)"
