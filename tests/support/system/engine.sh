#!/bin/sh
# engine.sh start|stop [FOLDER]: a Docker engine of the project's own, on FOLDER/docker.sock (.engine), apart from any other.
set -eu
folder=$(realpath -m "${2:-.engine}")
# A pid may have passed on to a stranger since the engine died.
running() { [ -f "$folder/docker.pid" ] && grep -qs dockerd "/proc/$(cat "$folder/docker.pid")/comm"; }

case ${1:-} in
start)
    answer="the engine answers; other commands find it with: export DOCKER_HOST=unix://$folder/docker.sock"
    if running; then echo "$answer"; exit 0; fi
    mkdir -p "$folder"
    rm -f "$folder/docker.pid"
    nohup dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/docker.pid" \
        -H "unix://$folder/docker.sock" --bridge=none --iptables=false >"$folder/dockerd.log" 2>&1 &
    for _ in $(seq 300); do
        if DOCKER_HOST="unix://$folder/docker.sock" docker info >/dev/null 2>&1; then
            echo "$answer"
            exit 0
        fi
        sleep 0.2
    done
    echo "the engine did not start; its log is $folder/dockerd.log" >&2
    tail -n 5 "$folder/dockerd.log" >&2
    exit 5
    ;;
stop)
    if running; then kill "$(cat "$folder/docker.pid")"; fi
    for _ in $(seq 300); do running || exit 0; sleep 0.2; done
    echo "the engine of $folder did not end" >&2
    exit 5
    ;;
*)
    echo "usage: engine.sh start|stop [FOLDER]" >&2
    exit 2
    ;;
esac
