#!/bin/sh
# Create the database at the first start, then serve it. PID 1 of the container.
set -eu
umask 077

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
staging=$PGDATA.new

# As the public image does: once, before anybody else can connect, as the superuser.
run_init_scripts() {
    [ -n "$(ls /docker-entrypoint-initdb.d 2>/dev/null)" ] || return 0
    postgres -D "$staging" -c listen_addresses='' -c unix_socket_directories=/tmp &
    starting=$!
    until pg_isready --quiet --host=/tmp; do
        kill -0 "$starting"
        sleep 0.1
    done
    for script in /docker-entrypoint-initdb.d/*.sql; do
        echo "Running $script"
        psql --host=/tmp --set=ON_ERROR_STOP=1 --no-psqlrc --quiet \
            --username="$user" --dbname="$database" --file="$script"
    done
    kill -INT "$starting"
    wait "$starting"
}

create() {
    if [ -z "${POSTGRES_PASSWORD:-}" ]; then
        echo "POSTGRES_PASSWORD is not set: the superuser needs a password." >&2
        exit 1
    fi
    # Built beside its place and renamed when complete: a pod that is killed meanwhile leaves
    # nothing behind that the next start would take for a database.
    mkdir -p "$(dirname "$PGDATA")"
    rm -rf "$staging"
    password_file=$(mktemp)
    printf '%s\n' "$POSTGRES_PASSWORD" >"$password_file"
    initdb --pgdata="$staging" --username="$user" --pwfile="$password_file" \
        --auth-local=trust --auth-host=scram-sha-256 \
        --encoding=UTF8 --locale=C.UTF-8 >/dev/null
    rm "$password_file"
    echo "host all all all scram-sha-256" >>"$staging/pg_hba.conf"
    if [ "$database" != postgres ]; then
        quoted=$(printf '%s' "$database" | sed 's/"/""/g')
        echo "CREATE DATABASE \"$quoted\"" |
            postgres --single -D "$staging" -c log_min_messages=warning postgres >/dev/null
    fi
    run_init_scripts
    rmdir "$PGDATA" 2>/dev/null || true
    mv -T "$staging" "$PGDATA" || {
        echo "PGDATA ($PGDATA) must be a sub-folder of the volume, not its mount point." >&2
        exit 1
    }
}

# PID 1 ignores every signal that it has no trap for.
trap 'exit 143' TERM INT
[ -s "$PGDATA/PG_VERSION" ] || create

# With an fsGroup, the kubelet opens the volume to the group at each start, and PostgreSQL refuses a
# directory that others may write.
chmod 0700 "$PGDATA"

# SIGTERM means "when the last client is gone" to PostgreSQL, SIGINT "now, and cleanly". A stopped
# container must not wait for its clients.
# Its own programs look for the socket in /tmp, everyone else's in /var/run/postgresql.
postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql,/tmp \
    "$@" &
server=$!
trap 'kill -INT "$server"' TERM INT
code=0
wait "$server" || code=$?
# A trap interrupts `wait`; the server is still on its way down then.
while kill -0 "$server" 2>/dev/null; do
    code=0
    wait "$server" || code=$?
done
exit "$code"
