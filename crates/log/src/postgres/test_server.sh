# Runs a PostgreSQL server for tests, and removes it when stdin is closed, which also happens when the test process dies.
# Arguments: the folder of the programs, the folder for the data, the host and the port, lines for postgresql.conf, and for a
# standby the host and the port of its primary.
# Reads commands, one a line, and answers each with a line.
bin=$1 data=$2/data log=$2/log host=$3
create() {
  if [ -n "$1" ]; then
    "$bin/pg_basebackup" -R -c fast -D "$data" -d "host=$1 port=$2 user=parlor application_name=standby"
  else
    "$bin/initdb" -k -N -A trust -U parlor -E UTF8 --locale=C -D "$data" &&
      { [ "$host" = 127.0.0.1 ] || printf 'host %s all samenet trust\n' all replication >>"$data/pg_hba.conf"; }
  fi
}
{
  create "$6" "$7" &&
    printf '%s\n' "listen_addresses = '$host'" "port = $4" "unix_socket_directories = '$2'" \
      "max_connections = 300" "$5" >>"$data/postgresql.conf"
} >"$log" 2>&1 || { cat "$log"; rm -rf "$2"; exit 1; }
answer() { if "$@" >>"$log" 2>&1; then echo ok; else tail -n 20 "$log" | tr '\n' ' '; echo; fi; }
start() { "$bin/pg_ctl" -w -D "$data" -l "$log" start; }
kill_server() { "$bin/pg_ctl" -w -D "$data" -m immediate stop; }
# All at once, so that none of them can write anything when it notices the end of the first.
kill_hard() {
  read -r pid <"$data/postmaster.pid"
  kill -9 "$pid" $(cat "/proc/$pid/task/$pid/children")
  while [ -e "/proc/$pid" ]; do sleep 0.02; done
}
answer start
while read -r command; do
  case $command in
  start) answer start ;;
  kill) answer kill_server ;;
  sigkill) answer kill_hard ;;
  promote) answer "$bin/pg_ctl" -w -D "$data" promote ;;
  esac
done
kill_server >/dev/null 2>&1
rm -rf "$2"
