#!/usr/bin/env bash
# Installs the published programs that parlor is compared with, each once, into target/peers/bin: `synaps` and `yopo` (crates.io),
# `codex`, `opencode` and `gemini` (npm). The builds are long, which is why `make test` does not need them.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/target/peers
mkdir -p "$root/bin"

# install_crate NAME VERSION
install_crate() {
  if ! "$root/bin/$1" --version 2>/dev/null | grep -q "$2"; then
    echo "peers: building $1 $2 (many minutes, once)"
    cargo install --quiet --locked --root "$root" --target-dir "$root/build" "$1@$2"
    rm -rf "$root/build"
  fi
}
install_crate synaps 0.11.1
install_crate yopo 11.0.0

# The versions are in bench/package.json. The links are made last, so an installation that failed is repeated.
if ! cmp -s bench/package-lock.json "$root/npm/package-lock.json" || [ ! -x "$root/bin/gemini" ]; then
  echo "peers: installing the npm packages of bench/package.json"
  rm -rf "$root/npm" "$root/bin/codex" "$root/bin/opencode" "$root/bin/gemini"
  mkdir -p "$root/npm"
  cp bench/package.json bench/package-lock.json "$root/npm"
  # Not `npm ci`: opencode has optional packages that are not published for every machine, which it refuses.
  (cd "$root/npm" && npm install --no-save --loglevel=error --no-audit --no-fund >/dev/null)
  program=$(find "$root/npm/node_modules/@openai" -type f -name codex -perm -u+x -print -quit)
  if [ -z "$program" ]; then
    echo "peers: the npm package @openai/codex has no program for this machine" >&2
    exit 1
  fi
  ln -sfn "$program" "$root/bin/codex"
  ln -sfn "$root/npm/node_modules/.bin/opencode" "$root/bin/opencode"
  ln -sfn "$root/npm/node_modules/.bin/gemini" "$root/bin/gemini"
fi
# Even for its version, codex writes into its home.
echo "peers: $("$root/bin/synaps" --version), $(CODEX_HOME=$root/npm "$root/bin/codex" --version)"
