#!/usr/bin/env bash
# Shows that the checker of the cluster's soak finds faults of the log: builds a program with each patch of tests/cluster/mutants
# in a copy of the committed tree, and lets the soak look for what the fault breaks. Needs root, for the network of the nodes;
# some minutes each. Usage: mutants.sh [NAME...]
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- $(basename -s .patch tests/cluster/mutants/*.patch)
root=$PWD/target/mutants
for name in "$@"; do
  echo "mutants: $name"
  rm -rf "$root/tree"
  mkdir -p "$root/tree"
  git archive HEAD | tar x -C "$root/tree"
  # A page is part of the program, but not of these tests.
  [ ! -d web/dist ] || cp -r web/dist "$root/tree/web/"
  patch --quiet -p1 -d "$root/tree" <"tests/cluster/mutants/$name.patch"
  (cd "$root/tree" && PARLOR_MUTANT=$name CARGO_TARGET_DIR=$root/build \
    cargo test --quiet -p parlor --test cluster "soak::mutants::$name" -- --nocapture)
done
