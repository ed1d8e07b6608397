#!/usr/bin/env bash
# Installs what `make test` needs and this machine lacks. Quiet when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v cc >/dev/null && command -v c++ >/dev/null || missing+=(build-essential)
command -v ps >/dev/null || missing+=(procps)
command -v bash >/dev/null || missing+=(bash)
command -v ip >/dev/null || missing+=(iproute2)
command -v ruby >/dev/null || missing+=(ruby)
command -v npm >/dev/null || missing+=(nodejs npm)
command -v dbus-daemon >/dev/null || missing+=(dbus)
command -v gnome-keyring-daemon >/dev/null || missing+=(gnome-keyring)
command -v openssl >/dev/null || missing+=(openssl)
# The commands of the documentation use these.
command -v curl >/dev/null || missing+=(curl)
command -v jq >/dev/null || missing+=(jq)
command -v nc >/dev/null || missing+=(netcat-openbsd)
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${missing[*]}"
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# The server of the tests in crates/log/tests/postgres, which start one of their own. Debian's package would make a cluster
# and start it; the line in createcluster.conf prevents both.
if ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
  echo "setup: installing postgresql, without starting it"
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  install=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends)
  "${install[@]}" postgresql-common >/dev/null
  "${root[@]}" sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
  "${install[@]}" postgresql >/dev/null
fi

# The proxies of docs/proxy.md. Debian's packages start them as services, so their files are only unpacked, into target/proxies.
for proxy in nginx caddy; do
  if ! PATH=$PATH:/usr/sbin:$PWD/target/proxies/usr/sbin:$PWD/target/proxies/usr/bin command -v $proxy >/dev/null; then
    echo "setup: unpacking $proxy into target/proxies"
    mkdir -p target/proxies
    if ! (cd target/proxies && apt-get download -qq $proxy >/dev/null 2>&1); then
      root=()
      [ "$(id -u)" = 0 ] || root=(sudo)
      "${root[@]}" apt-get update -qq
      (cd target/proxies && apt-get download -qq $proxy >/dev/null)
    fi
    dpkg-deb -x target/proxies/"$proxy"_*.deb target/proxies
    rm target/proxies/"$proxy"_*.deb
  fi
done

# Counts instructions for `make profile-check`.
scripts/valgrind.sh >/dev/null

for tool in cargo-fuzz@0.13.2 cargo-deny@0.20.2; do
  name=${tool%@*}
  # Asked through cargo, which also looks where it installs to; PATH may not have that folder.
  if ! cargo "${name#cargo-}" --version >/dev/null 2>&1; then
    echo "setup: installing $name (a few minutes, once)"
    # An unoptimised build takes a third of the time, and the tool is used for seconds.
    cargo install --quiet --locked --debug "$tool"
  fi
done

# npm writes this file last: a folder without it was never finished.
if [ ! -f tests/json-suite/node_modules/.package-lock.json ]; then
  echo "setup: installing npm packages for tests/json-suite"
  npm ci --loglevel=error --no-audit --no-fund --prefix tests/json-suite >/dev/null
fi
if [ ! -f tests/auth/node_modules/.package-lock.json ]; then
  echo "setup: installing npm packages for tests/auth"
  npm ci --loglevel=error --no-audit --no-fund --prefix tests/auth >/dev/null
fi
if [ ! -f tests/models/node_modules/.package-lock.json ]; then
  echo "setup: installing npm packages for tests/models"
  npm ci --loglevel=error --no-audit --no-fund --prefix tests/models >/dev/null
fi
