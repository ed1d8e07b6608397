#!/usr/bin/env bash
# Packs an installed tree (bin, share) as a Debian package with systemd units.
# usage: SOURCE_DATE_EPOCH=SECONDS deb.sh TREE VERSION OUTPUT_FOLDER
set -euo pipefail
tree=$(realpath "$1")
version=$2
out=$(realpath "$3")
cd "$(dirname "$0")/../.."
umask 022

deb=$(mktemp -d)/parlor
trap 'rm -rf "$(dirname "$deb")"' EXIT
mkdir -p "$deb/DEBIAN" "$deb/usr/lib/systemd/system" "$deb/usr/lib/systemd/user"
cp -r "$tree/bin" "$tree/share" "$deb/usr/"
rm -r "$deb/usr/share/doc/parlor/LICENSE"
mkdir -p "$deb/usr/share/fish/vendor_completions.d" "$deb/usr/share/zsh/vendor-completions"
mv "$deb/usr/share/zsh/site-functions/_parlor" "$deb/usr/share/zsh/vendor-completions/_parlor"
rmdir "$deb/usr/share/zsh/site-functions"
gzip -9 -n "$deb"/usr/share/man/man1/*.1 "$deb/usr/share/doc/parlor/CHANGELOG.md" "$deb/usr/share/doc/parlor/THIRD-PARTY-LICENCES.txt"
mv "$deb/usr/share/doc/parlor/CHANGELOG.md.gz" "$deb/usr/share/doc/parlor/changelog.gz"
{
  printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: parlor\n\nFiles: *\nCopyright: %s\nLicense: MIT\n' \
    "$(sed -n 's/^Copyright (c) //p' LICENSE)"
  sed -n '5,$p' LICENSE | sed 's/^$/./; s/^/ /'
  printf '\nComment: THIRD-PARTY-LICENCES.txt.gz has the licences of what the program contains.\n'
} >"$deb/usr/share/doc/parlor/copyright"
install -m 644 packaging/parlor.service "$deb/usr/lib/systemd/system/parlor.service"
install -m 644 packaging/parlor-user.service "$deb/usr/lib/systemd/user/parlor.service"
cat >"$deb/DEBIAN/control" <<CONTROL
Package: parlor
Version: $version
Architecture: amd64
Maintainer: The parlor developers <parlor@example.org>
Section: devel
Priority: optional
Installed-Size: $(du -sk --apparent-size "$deb/usr" | cut -f 1)
Recommends: ca-certificates, git
Suggests: ruby, systemd
Description: agent runtime that many programs can talk to
 Parlor runs AI agents and serves them to programs: it keeps conversations,
 runs tools and commands for the agent, and lets a terminal, a web page, an
 editor plugin, a chat bridge or another program talk to the same ones.
 A built-in agent needs no key and no network.
CONTROL
(cd "$deb" && find usr -type f | sort | xargs -d '\n' md5sum) >"$deb/DEBIAN/md5sums"
find "$deb" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
# One thread: with several, xz cuts the data into blocks by the number of processors.
dpkg-deb --root-owner-group -Zxz -z6 --threads-max=1 --build "$deb" "$out/parlor_${version}_amd64.deb" >/dev/null
