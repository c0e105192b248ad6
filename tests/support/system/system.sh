#!/bin/sh
# What the tests need of the system: a Docker engine, an OCI registry and a proxy to start, mmdebstrap for the
# base image, docker-compose and kubectl to read what deploys the service, chromium to show the pages. Each argument is another command
# that is needed, whose package has its name.
set -eu
missing=""
command -v dockerd >/dev/null || missing="$missing docker.io"
command -v mmdebstrap >/dev/null || missing="$missing mmdebstrap"
command -v docker-registry >/dev/null || missing="$missing docker-registry"
[ -x /usr/sbin/nginx ] || command -v nginx >/dev/null || missing="$missing nginx-light"
command -v docker-compose >/dev/null || missing="$missing docker-compose"
command -v kubectl >/dev/null || missing="$missing kubernetes-client"
command -v chromium >/dev/null || missing="$missing chromium fonts-dejavu-core"
for command in "$@"; do
    command -v "$command" >/dev/null || missing="$missing $command"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing$missing" >&2
    apt-get update -qq
    # shellcheck disable=SC2086 # one word a package
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
else
    echo "missing:$missing. Install them (Debian: apt-get install$missing); tests that need them are skipped without" >&2
fi
