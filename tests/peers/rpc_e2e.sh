#!/usr/bin/env bash
# Runs the tests `rpc_e2e` of the published crate `synaps` against parlor's link `synaps`. Usage: rpc_e2e.sh PARLOR
#
# The tests are compiled where cargo has unpacked the crate; nothing of it is copied. They find the program under test in
# CARGO_BIN_EXE_synaps, and need only `synaps-core` of the crate's own code. Their second part wants a slow model from a
# provider extension, whose file is not published; slow_agent/ has a script agent of that name. rpc_e2e.txt lists the tests
# that cannot pass, each with its reason; a listed test that passes is an error.
set -euo pipefail
parlor=$(realpath "$1")
cd "$(dirname "$0")/../.."
version=0.11.1
known=$PWD/tests/peers/rpc_e2e.txt
slow_agent=$PWD/tests/peers/slow_agent
root=$PWD/target/peers/rpc_e2e

find_tests() {
  find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -path "*/synaps-$version/tests/rpc_e2e.rs" -print -quit 2>/dev/null || true
}
tests=$(find_tests)
if [ -z "$tests" ]; then
  cargo info --quiet "synaps@$version" >/dev/null
  tests=$(find_tests)
fi
if [ -z "$tests" ]; then
  echo "peers: cargo has not unpacked synaps $version: run cargo info synaps@$version, and look for rpc_e2e.rs" >&2
  exit 1
fi

mkdir -p "$root/src" "$root/links"
: >"$root/src/lib.rs"
manifest="[package]
name = \"rpc_e2e\"
version = \"0.0.0\"
edition = \"2021\"
publish = false
[workspace]
[[test]]
name = \"rpc_e2e\"
path = \"$tests\"
[dev-dependencies]
synaps_cli = { package = \"synaps-core\", version = \"=$version\" }
anyhow = \"1\"
serde_json = \"1\"
tempfile = \"3\"
tokio = { version = \"1\", features = [\"full\"] }"
if [ "$(cat "$root/Cargo.toml" 2>/dev/null)" != "$manifest" ]; then
  printf '%s\n' "$manifest" >"$root/Cargo.toml"
  cp "$(dirname "$tests")/../Cargo.lock" "$root/Cargo.lock"
fi
"$parlor" link --force "$root/links" >/dev/null
# The second part sets SYNAPS_AUTH_ENDPOINT, and every test has a HOME of its own.
cat >"$root/synaps.sh" <<END
#!/bin/sh
if [ -n "\$SYNAPS_AUTH_ENDPOINT" ]; then
  PARLOR_HOME=\$HOME/.parlor
  export PARLOR_HOME
  mkdir -p -m 700 "\$PARLOR_HOME"
  cp "$slow_agent/parlor.toml" "$slow_agent/slow.toml" "\$PARLOR_HOME"
fi
exec "$root/links/synaps" "\$@"
END
chmod +x "$root/synaps.sh"
export CARGO_BIN_EXE_synaps=$root/synaps.sh CARGO_TARGET_DIR=$root/target
unset PARLOR_HOME SYNAPS_BASE_DIR SYNAPS_AUTH_ENDPOINT
[ -d "$root/target" ] || echo "peers: building the tests rpc_e2e of synaps $version (some minutes, once)"
cargo test --quiet --manifest-path "$root/Cargo.toml" --no-run

# The tests leave some of their homes behind.
TMPDIR=$(mktemp -d)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
# The exit status does not matter: the lists below do.
results=$(RUST_BACKTRACE=0 cargo test --quiet --manifest-path "$root/Cargo.toml" --test rpc_e2e -- --format=pretty 2>"$root/stderr" || true)
passed=$(sed -n 's/^test \(.*\) \.\.\. ok$/\1/p' <<<"$results" | sort)
failed=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' <<<"$results" | sort)
listed=$(sed -n 's/^\([a-z0-9_:]*\): .*/\1/p' "$known" | sort)
surprises=$(comm -3 <(grep . <<<"$failed") <(grep . <<<"$listed"))
if [ -z "$passed" ] || [ -n "$surprises" ]; then
  printf '%s\n' "$results"
  cat "$root/stderr" >&2
  echo "peers: these tests of rpc_e2e fail and are not in tests/peers/rpc_e2e.txt, or are there and do not fail:" >&2
  echo "$surprises" >&2
  exit 1
fi
echo "peers: $(grep -c . <<<"$passed") tests of rpc_e2e pass; tests/peers/rpc_e2e.txt lists the others"
