#!/usr/bin/env bash
# Builds the static program for one target, such as x86_64-unknown-linux-musl, and prints its path. No path and no
# time of the machine gets into it, so that the same commit can give the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=$1
profile=${DIST_PROFILE:-release}
folder=$PWD/target/dist
tools=$folder/tools
# Zig's clang brings the headers of musl and of Linux for all targets, and needs no root to install.
zig_version=0.17.0

say() { echo "dist: $*" >&2; }

if ! rustup target list --installed 2>/dev/null | grep -qx "$target"; then
  say "installing the standard library for $target"
  rustup target add "$target" >&2
fi
if [ ! -e "$tools/zig-$zig_version" ]; then
  say "installing zig $zig_version as a C compiler (from PyPI, once)"
  rm -rf "$tools"
  mkdir -p "$tools"
  python3 -m pip install --quiet --disable-pip-version-check --target "$tools/python" "ziglang==$zig_version" >&2
  touch "$tools/zig-$zig_version"
fi

# cc passes Rust's name of the target, which Zig does not know; the wrapper has Zig's.
zig_target=${target/-unknown/}
cat >"$tools/$target-cc" <<WRAPPER
#!/usr/bin/env bash
arguments=()
for argument in "\$@"; do
  case \$argument in --target=*) ;; *) arguments+=("\$argument") ;; esac
done
exec "$tools/python/ziglang/zig" cc -target $zig_target -fno-sanitize=undefined "\${arguments[@]}"
WRAPPER
cat >"$tools/$target-ar" <<WRAPPER
#!/usr/bin/env bash
exec "$tools/python/ziglang/zig" ar "\$@"
WRAPPER
chmod +x "$tools/$target-cc" "$tools/$target-ar"

cargo_home=${CARGO_HOME:-$HOME/.cargo}
underscored=${target//-/_}
export "CC_$underscored=$tools/$target-cc" "AR_$underscored=$tools/$target-ar"
# No path of this machine gets into the program.
export "CFLAGS_$underscored=-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$PWD=/parlor"
export RUSTFLAGS="-C linker=rust-lld -C linker-flavor=ld.lld --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$PWD=/parlor"
export ZIG_GLOBAL_CACHE_DIR=$folder/zig-cache ZIG_LOCAL_CACHE_DIR=$folder/zig-cache
PARLOR_COMMIT=${PARLOR_COMMIT:-$(git rev-parse HEAD)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export PARLOR_COMMIT SOURCE_DATE_EPOCH CARGO_INCREMENTAL=0
cargo build --locked --quiet --profile "$profile" --target "$target" --target-dir "$folder" -p parlor >&2
echo "$folder/$target/${profile/#dev/debug}/parlor"
