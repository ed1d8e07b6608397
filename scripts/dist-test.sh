#!/usr/bin/env bash
# `make dist-test`: tries the packages of `make dist` where nothing else is: the program alone in an empty root, the Debian
# package in a fresh Debian (made by debootstrap, which needs root and Debian's mirror, once), the npm package and the
# wheel. Removes what it made, but for the downloaded Debian in target/dist.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$PWD/target/dist/packages
base=$PWD/target/dist/debian-12.tar
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
binary=$packages/parlor-$version-x86_64-linux
deb=$packages/parlor_${version}_amd64.deb

if [ "$(id -u)" != 0 ]; then
  echo "dist-test: chroot needs root" >&2
  exit 1
fi
if [ ! -f "$packages/SHA256SUMS" ]; then
  echo "dist-test: run make dist first" >&2
  exit 1
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/parlor-dist-XXXXXX")
pids=()
# Ends a server by the process of the shell that waits for it. Between the two may be unshare, which ignores SIGTERM.
end() {
  local child
  for child in $(pgrep -P "$1" || true); do
    pkill -TERM -P "$child" || kill -TERM "$child" 2>/dev/null || true
  done
  wait "$1" 2>/dev/null || true
}
clean_up() {
  for pid in "${pids[@]}"; do end "$pid"; done
  for mount in "$folder"/debian/proc "$folder"/debian/dev; do mountpoint -q "$mount" && umount -R "$mount"; done
  rm -rf "$folder"
}
trap clean_up EXIT

seen=0
step() { seen=$((seen + 1)); echo "dist-test: $*"; }
fail() { echo "dist-test: FAILED: $*" >&2; exit 1; }
# TEXT EXPECTED: compares.
same() { [ "$1" = "$2" ] || fail "expected '$2', got '$1'"; }
has() { case $1 in *"$2"*) ;; *) fail "expected '$2' in: $1" ;; esac; }
# Waits until a server has written its addresses, and prints that of HTTP.
http_address() {
  for _ in $(seq 600); do
    if [ -s "$1" ]; then sed -n 's/.*"http"[^"]*"\([^"]*\)".*/\1/p' "$1"; return; fi
    sleep 0.1
  done
  fail "$1 does not appear"
}

step "the checksums hold"
(cd "$packages" && sha256sum --quiet --check SHA256SUMS)

step "the program needs no library"
has "$(file -b "$binary" 2>/dev/null || echo static)" static
! readelf -d "$binary" 2>/dev/null | grep -q NEEDED || fail "the program is linked dynamically"

# --- an empty root: the program, the folder for its state, and for processes /dev/null, which is their stdin ---
empty=$folder/empty
install -D -m 755 "$binary" "$empty/parlor"
chroot=$(PATH=$PATH:/usr/sbin command -v chroot)
in_empty() { env -i PARLOR_HOME="${state:-/state}" HOME=/ "$(command -v unshare)" --mount --pid --fork --kill-child "$chroot" "$empty" "$@"; }

step "empty root: chat"
same "$(in_empty /parlor chat '/say hi')" hi
step "empty root: sessions, backup and restore"
has "$(in_empty /parlor sessions)" "/say hi"
in_empty /parlor backup /backup.tar.gz >/dev/null
state=/other in_empty /parlor restore /backup.tar.gz >/dev/null
has "$(state=/other in_empty /parlor sessions)" "/say hi"
step "empty root, with /dev/null: the exec door runs a program"
mkdir "$empty/dev" && mknod -m 666 "$empty/dev/null" c 1 3
said=$(printf '%s\n' \
  '{"id":1,"method":"initialize","params":{"clientName":"me"}}' \
  '{"method":"initialized"}' \
  '{"id":2,"method":"command/exec","params":{"processId":"p","argv":["/parlor","--version"],"cwd":"/","env":{},"tty":false}}' \
  | { cat; sleep 3; } | in_empty /parlor stdio exec)
has "$said" '"chunk":"'"$(printf 'parlor %s\n' "$version" | base64)"'"'
has "$said" '"exitCode":0}'
step "empty root: the page"
in_empty /parlor serve --listen 127.0.0.1:0 --no-supex >/dev/null 2>"$folder/serve.log" &
pids+=($!)
address=$(http_address "$empty/state/serve.json")
has "$(curl -sS "http://$address/")" '<title>'
same "$(curl -sS -o /dev/null -w '%{http_code}' "http://$address/ready")" 200
end "${pids[-1]}"

# --- a fresh Debian ---
if [ ! -f "$base" ]; then
  command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null
  step "making a fresh Debian (some minutes, once)"
  debootstrap --variant=minbase bookworm "$folder/debian" "$mirror" >"$folder/debootstrap.log" 2>&1 || { cat "$folder/debootstrap.log" >&2; exit 1; }
  tar -C "$folder/debian" --one-file-system -cf "$base.part" . && mv "$base.part" "$base"
else
  mkdir "$folder/debian" && tar -C "$folder/debian" -xf "$base"
fi
root=$folder/debian
mount -t proc proc "$root/proc"
in_debian() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$chroot" "$root" "$@"; }
as_user() { env -i PATH=/usr/bin:/bin HOME=/home/user LANG=C.UTF-8 "$chroot" --userspec=1000:1000 "$root" /bin/sh -c "cd /home/user && $1"; }
in_debian useradd --create-home --uid 1000 user

step "Debian: install the version before"
tar xzf "$packages/parlor-$version-x86_64-linux.tar.gz" -C "$folder"
SOURCE_DATE_EPOCH=0 scripts/dist/deb.sh "$folder/parlor-$version" "$version~before" "$folder"
cp "$folder/parlor_$version~before_amd64.deb" "$deb" "$root/root/"
in_debian dpkg -i "/root/parlor_$version~before_amd64.deb" >/dev/null
same "$(as_user 'parlor --version')" "parlor $version"

step "Debian: start by hand, as the unit of a person does"
start=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/user/parlor.service")
as_user "exec $start --listen 127.0.0.1:0 --no-supex" >/dev/null 2>>"$folder/serve.log" &
pids+=($!)
address=$(http_address "$root/home/user/.parlor/serve.json")
step "Debian: chat, and the page with the token"
same "$(as_user "parlor chat '/say hi'")" hi
same "$(as_user "parlor chat '!echo \$((6 * 7))'" | head -n 1)" 42
has "$(curl -sS "http://$address/")" '<title>'
token=$(as_user 'parlor token')
has "$(curl -sS -H "Authorization: Bearer $token" "http://$address/api/sessions")" '/say hi'

step "Debian: backup while it runs"
as_user 'parlor backup ~/backup.tar.gz' >/dev/null
tar tzf "$root/home/user/backup.tar.gz" | grep -qx parlor.db

step "Debian: upgrade while it runs; the sessions stay"
in_debian dpkg -i "/root/$(basename "$deb")" >/dev/null
same "$(in_debian dpkg-query -W -f '${Version}' parlor)" "$version"
same "$(curl -sS -o /dev/null -w '%{http_code}' "http://$address/ready")" 200
end "${pids[-1]}"
has "$(as_user 'parlor sessions')" '/say hi'
step "Debian: restore into another folder"
as_user 'PARLOR_HOME=~/look parlor restore ~/backup.tar.gz' >/dev/null
has "$(as_user 'PARLOR_HOME=~/look parlor sessions')" '/say hi'

step "Debian: manual pages, completions, units and licences are in their places"
for file in share/man/man1/parlor-chat.1.gz share/bash-completion/completions/parlor share/zsh/vendor-completions/_parlor \
  share/fish/vendor_completions.d/parlor.fish share/doc/parlor/THIRD-PARTY-LICENCES.txt.gz share/doc/parlor/copyright \
  lib/systemd/system/parlor.service lib/systemd/user/parlor.service; do
  [ -s "$root/usr/$file" ] || fail "/usr/$file is missing"
done
in_debian bash -c '. /usr/share/bash-completion/completions/parlor && complete -p parlor' >/dev/null

step "Debian: remove; the person's state stays"
in_debian dpkg --purge parlor >/dev/null
[ ! -e "$root/usr/bin/parlor" ] && [ ! -e "$root/usr/share/doc/parlor" ] || fail "the package left files"
[ -s "$root/home/user/.parlor/parlor.db" ] || fail "the state is gone"
if command -v systemd-analyze >/dev/null; then
  step "the units are valid"
  for unit in parlor.service parlor-user.service; do
    sed "s|/usr/bin/parlor|$binary|" "packaging/$unit" >"$folder/$unit"
    said=$(systemd-analyze verify --man=no "$folder/$unit" 2>&1 | grep -F "$unit" || true)
    [ -z "$said" ] || fail "$said"
  done
fi

# --- the packages of other worlds ---
if command -v npm >/dev/null; then
  step "npm: install and run"
  npm install --silent --no-audit --no-fund --prefix "$folder/npm" "$packages/parlor-$version.tgz" >/dev/null 2>&1
  same "$(PARLOR_HOME=$folder/npm-home "$folder/npm/node_modules/.bin/parlor" chat '/say hi')" hi
fi
if python3 -m venv "$folder/venv" 2>/dev/null; then
  step "pip: install and run"
  "$folder/venv/bin/pip" install --quiet --no-index --disable-pip-version-check "$packages"/parlor-"$version"-py3-none-*.whl
  same "$(PARLOR_HOME=$folder/pip-home "$folder/venv/bin/parlor" chat '/say hi')" hi
  "$folder/venv/bin/pip" uninstall --quiet --yes parlor
  [ ! -e "$folder/venv/bin/parlor" ] || fail "pip left the program"
fi
step "the archive installs below a prefix"
mkdir "$folder/prefix"
tar xzf "$packages/parlor-$version-x86_64-linux.tar.gz" --strip-components=1 -C "$folder/prefix"
same "$(PARLOR_HOME=$folder/tar-home "$folder/prefix/bin/parlor" chat '/say hi')" hi
echo "dist-test: all $seen steps passed"
