#!/bin/sh
# environment.sh PYTHON FOLDER REQUIREMENTS: a virtual environment of exactly those hashed requirements, and benchlock.
set -eu
python=$1 folder=$2 requirements=$3

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "benchlock needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11" >&2
    exit 5
}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv >/dev/null
    else
        echo "$python has no venv module; install it (Debian: apt-get install python3-venv) and run make again" >&2
        exit 5
    fi
fi
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
echo "setting up $folder from $requirements" >&2
"$folder/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --require-hashes -r "$requirements"
"$folder/bin/python" -m pip install -qq --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .
# Byte code is compiled here, on every core, and not at each start of a command.
"$folder/bin/python" -m compileall -q -j 0 "$folder/lib" >/dev/null || true
