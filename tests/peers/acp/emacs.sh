#!/usr/bin/env bash
# acp.el in Emacs as a client. It is no package of a registry: ACP_EL is the path of its file, such as ~/src/acp.el/acp.el.
# Without it, or without Emacs, says so and does nothing. Usage: ACP_EL=… emacs.sh PARLOR FOLDER
set -euo pipefail
if [ -z "${ACP_EL:-}" ]; then
  echo "acp: skipped acp.el: set ACP_EL to the path of acp.el (github.com/xenodium/acp.el) to test with it"
  exit 0
fi
if ! command -v emacs >/dev/null; then
  echo "acp: skipped acp.el: there is no emacs in PATH (Debian: apt-get install emacs-nox)"
  exit 0
fi
[ -f "$ACP_EL" ] || { echo "acp: ACP_EL is $ACP_EL, which is not a file" >&2; exit 1; }
exec emacs -Q --batch -L "$(dirname "$ACP_EL")" -l "$(dirname "$0")/emacs.el" "$@"
