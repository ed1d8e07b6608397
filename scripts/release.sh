#!/usr/bin/env bash
# `make release`: checks that the tree can be released, builds and tries the packages, and tags the commit. Publishes nothing.
# With RELEASE_CHECK=1 it stops after the checks.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
tag=v$version
refuse() { echo "release: $*" >&2; exit 1; }

# The lines below a heading of the changelog, up to the next one.
section() { awk -v heading="## $1" 'index($0, "## ") == 1 { inside = (index($0, heading) == 1) ; next } inside' CHANGELOG.md; }

[ -z "$(git status --porcelain)" ] || refuse "the tree has changes that are not committed"
! git rev-parse --quiet --verify "refs/tags/$tag" >/dev/null || refuse "the tag $tag exists; set a new version in Cargo.toml"
grep -qE "^## ${version//./\\.} \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md || refuse "CHANGELOG.md has no section \"## $version (YYYY-MM-DD)\""
[ -n "$(section "$version" | tr -d '[:space:]')" ] || refuse "the section of $version in CHANGELOG.md is empty"
[ -z "$(section Unreleased | tr -d '[:space:]')" ] || refuse "CHANGELOG.md has entries under Unreleased; move them to $version"
cargo metadata --locked --format-version 1 --no-deps >/dev/null 2>&1 || refuse "Cargo.lock is not up to date: cargo update --workspace"
echo "release: $version can be released"
[ -z "${RELEASE_CHECK:-}" ] || exit 0

scripts/dist.sh
scripts/dist-test.sh
section "$version" | sed '/./,$!d' | git tag --annotate --cleanup=verbatim --file=- "$tag"
echo "release: tagged $tag. To publish it: git push origin $tag, and upload target/dist/packages"
