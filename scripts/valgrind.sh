#!/usr/bin/env bash
# Prints the path of a valgrind that knows the system calls that parlor needs, such as openat2: the installed one if it is 3.22
# or later, else that of Debian 13, unpacked into target/valgrind. Fails if neither can be had.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(valgrind --version 2>/dev/null | sed 's/^valgrind-//' || true)
if [ -n "$version" ] && [ "$(printf '%s\n' 3.22 "$version" | sort -V | head -n 1)" = 3.22 ]; then
  command -v valgrind
  exit
fi

root=$PWD/target/valgrind
if [ ! -x "$root/run" ]; then
  mkdir -p "$root/apt/lists/partial"
  # The mirror that this machine uses already, with the suite of Debian 13 in place of its own.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
  echo "deb $mirror trixie main" >"$root/apt/sources.list"
  options=(-o Dir::Etc::SourceList="$root/apt/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$root/apt/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
  echo "valgrind: unpacking that of Debian 13 into target/valgrind" >&2
  apt-get -qq "${options[@]}" update >&2
  (cd "$root" && apt-get -qq "${options[@]}" download valgrind >&2)
  dpkg-deb -x "$root"/valgrind_*.deb "$root"
  rm -r "$root"/valgrind_*.deb "$root/apt"
  # Written last: a folder without it was never finished.
  printf '#!/bin/sh\nVALGRIND_LIB="%s" exec "%s" "$@"\n' "$root/usr/libexec/valgrind" "$root/usr/bin/valgrind" >"$root/run"
  chmod +x "$root/run"
fi
echo "$root/run"
