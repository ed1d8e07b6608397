# Runs a PostgreSQL server for tests, and removes it when stdin is closed, which also happens when the test process dies.
# Arguments: the folder of the programs, the folder for the data, the port, and lines for postgresql.conf.
# Reads commands, one a line, and answers each with a line.
bin=$1 data=$2/data log=$2/log
{
  "$bin/initdb" -k -N -A trust -U parlor -E UTF8 --locale=C -D "$data" &&
    printf '%s\n' "listen_addresses = '127.0.0.1'" "port = $3" "unix_socket_directories = '$2'" \
      "max_connections = 300" "$4" >>"$data/postgresql.conf"
} >"$log" 2>&1 || { cat "$log"; rm -rf "$2"; exit 1; }
answer() { if "$@" >>"$log" 2>&1; then echo ok; else tail -n 20 "$log" | tr '\n' ' '; echo; fi; }
start() { "$bin/pg_ctl" -w -D "$data" -l "$log" start; }
kill_server() { "$bin/pg_ctl" -w -D "$data" -m immediate stop; }
answer start
while read -r command; do
  case $command in
  start) answer start ;;
  kill) answer kill_server ;;
  esac
done
kill_server >/dev/null 2>&1
rm -rf "$2"
