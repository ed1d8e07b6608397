#!/usr/bin/env bash
# `make dist`: everything that is shipped, in target/dist/packages. Made so that the same commit gives the same bytes.
#
#   DIST_BINARY=FILE   packs this program instead of building one, to work on the packages
#   DIST_DIRTY=1       builds a tree with changes that are not committed
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-unknown-linux-musl
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
PARLOR_COMMIT=$(git rev-parse HEAD)
export SOURCE_DATE_EPOCH PARLOR_COMMIT LC_ALL=C TZ=UTC
umask 022

if [ -z "${DIST_DIRTY:-}" ] && [ -n "$(git status --porcelain)" ]; then
  echo "dist: the tree has changes that are not committed; commit them, or set DIST_DIRTY=1 for a trial" >&2
  exit 1
fi

scripts/build-page.sh
if [ ! -f web/dist/index.html ]; then
  echo "dist: the page is missing; install npm, or the program would be shipped without it" >&2
  exit 1
fi
if [ -n "${DIST_BINARY:-}" ]; then
  binary=$DIST_BINARY
else
  echo "dist: building parlor $version for $target, which takes many minutes"
  binary=$(scripts/dist/build.sh "$target")
fi

work=$PWD/target/dist/work
out=$PWD/target/dist/packages
rm -rf "$work" "$out"
mkdir -p "$work" "$out"

# Gives all files of a folder one time, so that archives of it do not depend on when they were made.
settle() { find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +; }
archive() { # FOLDER FILE: packs what is in FOLDER's parent under FOLDER's name
  settle "$1"
  tar --sort=name --owner=0 --group=0 --numeric-owner --format=ustar --mtime="@$SOURCE_DATE_EPOCH" \
    -C "$(dirname "$1")" -c "$(basename "$1")" | gzip -9 -n >"$2"
}

# One folder with everything, which the archive and the Debian package install below a prefix.
tree=$work/parlor-$version
share=$tree/share
install -D -m 755 "$binary" "$tree/bin/parlor"
"$tree/bin/parlor" man "$share/man/man1" >/dev/null
mkdir -p "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"
"$tree/bin/parlor" completions bash >"$share/bash-completion/completions/parlor"
"$tree/bin/parlor" completions zsh >"$share/zsh/site-functions/_parlor"
"$tree/bin/parlor" completions fish >"$share/fish/vendor_completions.d/parlor.fish"
mkdir -p "$share/doc/parlor"
cp LICENSE README.md CHANGELOG.md SECURITY.md "$share/doc/parlor/"
cp -r docs "$share/doc/parlor/docs"
install -m 644 packaging/parlor.service packaging/parlor-user.service "$share/doc/parlor/docs/examples/"
sbom=$out/parlor-$version.cdx.json
scripts/dist/third_party.py "$target" "$share/doc/parlor/THIRD-PARTY-LICENCES.txt" "$sbom"
chmod -R u=rwX,go=rX "$tree"
archive "$tree" "$out/parlor-$version-x86_64-linux.tar.gz"

# The bare program, for those who put it into an image.
install -m 755 "$binary" "$out/parlor-$version-x86_64-linux"

scripts/dist/deb.sh "$tree" "$version" "$out"

# npm: the program itself is the package's `bin`, so no JavaScript stands between a client and its stdin and stdout.
npm=$work/package
mkdir -p "$npm/bin"
install -m 755 "$binary" "$npm/bin/parlor"
cp packaging/npm/README.md LICENSE "$share/doc/parlor/THIRD-PARTY-LICENCES.txt" "$npm/"
cat >"$npm/package.json" <<MANIFEST
{
  "name": "parlor",
  "version": "$version",
  "description": "One agent runtime with many doors",
  "license": "MIT",
  "os": ["linux"],
  "cpu": ["x64"],
  "bin": { "parlor": "bin/parlor" },
  "files": ["bin", "THIRD-PARTY-LICENCES.txt"]
}
MANIFEST
archive "$npm" "$out/parlor-$version.tgz"

# Python. A static program runs with every C library, so both kinds of tags are true.
scripts/dist/wheel.py "$version" "$binary" manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64 "$out" \
  LICENSE "$share/doc/parlor/THIRD-PARTY-LICENCES.txt"

cp packaging/Containerfile "$out/"
settle "$out"
(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" . && sha256sum --quiet --check SHA256SUMS)
touch --date="@$SOURCE_DATE_EPOCH" "$out/SHA256SUMS"
rm -rf "$work"
echo "dist: target/dist/packages has"
(cd "$out" && ls -l --time-style=+ | awk 'NR > 1 { printf "  %10d  %s\n", $5, $6 }')
