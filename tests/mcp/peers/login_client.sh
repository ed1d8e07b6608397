#!/bin/sh
# A client for the conformance suite: logs in to the server at the last argument, and lists its tools. Needs $PARLOR.
set -eu
for url; do :; done
PARLOR_HOME=$(mktemp -d)
export PARLOR_HOME CI=1
trap 'rm -rf "$PARLOR_HOME"' EXIT
"$PARLOR" mcp add suite "$url" > /dev/null
mkfifo "$PARLOR_HOME/out"
"$PARLOR" mcp login suite > "$PARLOR_HOME/out" &
login=$!
exec 3< "$PARLOR_HOME/out"
# The suite's authorization server agrees at once, so following its redirects is all that a browser would do.
read -r address <&3 && curl --silent --location --max-time 10 "$address" > /dev/null
wait $login
"$PARLOR" mcp test suite
