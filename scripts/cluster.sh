#!/usr/bin/env bash
# Starts a PostgreSQL and three nodes that share it, all on loopback and in a temporary folder, until Ctrl-C. Removes
# everything then. Argument: the parlor program.
set -euo pipefail

parlor=$(realpath "$1")
nodes=(a b c)

# PostgreSQL's programs: those of PATH, else the newest of Debian's.
initdb=$(command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -V | tail -n 1)
bin=$(dirname "$(realpath "${initdb:-missing}")")
if [ ! -x "$bin/pg_ctl" ]; then
  echo "cluster: PostgreSQL is not installed; run scripts/setup.sh" >&2
  exit 1
fi

folder=$(mktemp -d "${TMPDIR:-/tmp}/parlor-cluster-XXXXXX")
# The user of the server has to reach its own folder in this one.
chmod 711 "$folder"
mkdir -m 700 "$folder/postgres"
data=$folder/postgres/data

# PostgreSQL refuses to run as root.
as_server=()
if [ "$(id -u)" = 0 ]; then
  chown nobody "$folder/postgres"
  as_server=(setpriv "--reuid=$(id -u nobody)" "--regid=$(id -g nobody)" --clear-groups)
fi
# The server's programs want a folder that their user may enter.
server() { (cd "$folder/postgres" && "${as_server[@]}" "$bin/$1" "${@:2}"); }

pids=()
clean_up() {
  trap '' INT TERM HUP
  # The nodes first, so that they hand back what they hold.
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  server pg_ctl -D "$data" -m fast -w stop >/dev/null 2>&1 || true
  rm -rf "$folder"
  echo "cluster: everything has ended, and $folder is removed"
}
trap clean_up EXIT
trap 'exit 0' INT TERM HUP

port=54320
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
echo "cluster: starting PostgreSQL on port $port"
if ! server initdb -k -N -A trust -U parlor -E UTF8 --locale=C -D "$data" >"$folder/setup.log" 2>&1; then
  cat "$folder/setup.log" >&2
  exit 1
fi
printf '%s\n' "listen_addresses = '127.0.0.1'" "port = $port" "unix_socket_directories = '$folder/postgres'" \
  >>"$data/postgresql.conf"
if ! server pg_ctl -D "$data" -l "$folder/postgres/log" -w start >"$folder/setup.log" 2>&1 ||
  ! server createdb -h 127.0.0.1 -p "$port" -U parlor parlor >>"$folder/setup.log" 2>&1; then
  cat "$folder/setup.log" "$folder/postgres/log" >&2
  exit 1
fi

# The same on all nodes: a client may use any of them.
token=$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')

# The settings of a node, by its name.
settings() {
  cat <<SETTINGS
# Node $1.

[log]
url = "postgres://parlor@127.0.0.1:$port/parlor"

[channels.supr]
token = "$token"
SETTINGS
}

# Sets `address` to where a node serves HTTP.
wait_for_node() {
  local file=$folder/node-$1/serve.json
  for _ in $(seq 600); do
    if [ -s "$file" ]; then
      address=$(sed -n 's/.*"http"[^"]*"\([^"]*\)".*/\1/p' "$file" | head -n 1)
      [ -z "$address" ] || return 0
    fi
    kill -0 "$2" 2>/dev/null || break
    sleep 0.1
  done
  echo "cluster: node $1 does not start" >&2
  cat "$folder/node-$1/log" >&2
  exit 1
}

for node in "${nodes[@]}"; do
  home=$folder/node-$node
  mkdir -m 700 "$home"
  (umask 077 && settings "$node" >"$home/parlor.toml")
  PARLOR_HOME=$home "$parlor" serve --listen 127.0.0.1:0 --no-supex >"$home/out" 2>"$home/log" </dev/null &
  pids+=($!)
done

echo "cluster: three nodes share postgres://parlor@127.0.0.1:$port/parlor"
for index in "${!nodes[@]}"; do
  wait_for_node "${nodes[$index]}" "${pids[$index]}"
  echo "  node ${nodes[$index]}: http://$address/  process ${pids[$index]}  PARLOR_HOME=$folder/node-${nodes[$index]}"
done
cat <<TRY

Try:
  # A session that begins at node a, and its list at node b.
  PARLOR_HOME=$folder/node-a $parlor chat '/say hello'
  PARLOR_HOME=$folder/node-b $parlor sessions
  # Move the sessions of this user here.
  $parlor log copy --from sqlite: --to postgres://parlor@127.0.0.1:$port/parlor
  # End node a without warning. Its sessions are free after 5 seconds.
  kill -9 ${pids[0]}
  # Who is alive, by the clock of the database.
  $bin/psql -h 127.0.0.1 -p $port -U parlor parlor -c 'SELECT node, pid, heartbeat, expired FROM nodes'

The token of all nodes is $token
Ctrl-C ends everything and removes $folder
TRY

sleep infinity &
pids+=($!)
wait $!
