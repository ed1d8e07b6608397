#!/usr/bin/env bash
# Holds conversations over the ACP door with published clients: acpx and the TypeScript SDK (npm), the Python SDK (PyPI), yopo
# (crates.io, from scripts/peers.sh) and, with ACP_EL, acp.el in Emacs. Installs those of npm and PyPI on the first call.
# Usage: run.sh PARLOR
set -euo pipefail
parlor=$(realpath "$1")
cd "$(dirname "$0")"
target=$(realpath ../../../target)
venv=$target/acp-clients
# Without a lock file: acpx has optional packages that are not published for every machine, which `npm ci` refuses.
[ -f node_modules/.package-lock.json ] ||
  npm install --no-package-lock --loglevel=error --no-audit --no-fund >/dev/null
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -c 'import acp' 2>/dev/null ||
  "$venv/bin/pip" install --quiet --disable-pip-version-check agent-client-protocol==0.12.1

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/home" "$folder/project"
export HOME=$folder/home PATH=$PWD/node_modules/.bin:$PATH

# new_state NAME: a state folder whose policy asks about the shell
new_state() {
  export PARLOR_HOME=$folder/$1
  mkdir "$PARLOR_HOME"
  cat >"$PARLOR_HOME/parlor.toml" <<'TOML'
[policy]
mode = "full"
enforce_all = true
ask = [{ tool = "shell" }]
TOML
}

new_state parlor
timeout 120 node sdk.mjs "$parlor" "$folder/project"
timeout 120 "$venv/bin/python" sdk.py "$parlor" "$folder/project"
timeout 300 bash acpx.sh "$parlor" "$folder/project"
timeout 120 bash emacs.sh "$parlor" "$folder/project"

new_state parlor-yopo
timeout 120 bash yopo.sh "$target/peers/bin/yopo" "$parlor" "$folder/project"
