#!/usr/bin/env bash
# Prints the path of a valgrind that knows the system calls that parlor needs, such as openat2: the installed one if it is 3.22
# or later, else Debian's, unpacked into target/valgrind.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(valgrind --version 2>/dev/null | sed 's/^valgrind-//' || true)
if [ -n "$version" ] && [ "$(printf '%s\n' 3.22 "$version" | sort -V | head -n 1)" = 3.22 ]; then
  command -v valgrind
  exit
fi

package=valgrind_3.24.0-3_amd64.deb
sha256=0359e30820ccee7ee5c8d4c951ca276e3978b18f157d71bd77981de05b344907
root=target/valgrind
if [ ! -x $root/run ]; then
  echo "valgrind: unpacking $package into $root" >&2
  mkdir -p $root
  curl --fail --silent --show-error --location --retry 3 --output $root/$package https://deb.debian.org/debian/pool/main/v/valgrind/$package
  echo "$sha256  $root/$package" | sha256sum --check --quiet
  dpkg-deb -x $root/$package $root
  rm $root/$package
  # Written last: a folder without it was never finished.
  printf '#!/bin/sh\nVALGRIND_LIB="%s" exec "%s" "$@"\n' "$PWD/$root/usr/libexec/valgrind" "$PWD/$root/usr/bin/valgrind" >$root/run
  chmod +x $root/run
fi
echo "$PWD/$root/run"
