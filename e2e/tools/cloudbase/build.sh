#!/bin/bash
# Installs cloudbase-init's Python package, as pinned in requirements.txt, into $CAPW_CACHE/tools/cloudbase-init-VERSION/ (see
# ../build.sh). An existing one is kept. Needs Python 3.9 or newer with venv and pip, and a package index
# the first time.
# Usage: build.sh          Prints the path of its Python interpreter. A second one waits for the first.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${CAPW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/capw}
mkdir -p "$CACHE/tools"; CACHE=$(cd "$CACHE/tools" && pwd)
VERSION=$(sed -n 's/^cloudbase-init==//p' "$HERE/requirements.txt")
TO=$CACHE/cloudbase-init-$VERSION
command -v python3 > /dev/null || { echo "the program python3 is missing: install Python 3.9 or newer" >&2; exit 1; }
if command -v flock > /dev/null; then exec 9> "$CACHE/cloudbase-init.lock"; flock 9; fi
. "$HERE/../prune.sh"; touch -c "$TO"; prune cloudbase-init
if ! cmp -s "$HERE/requirements.txt" "$TO/requirements.txt"; then
    rm -rf "$TO"
    python3 -m venv "$TO" >&2
    "$TO/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$HERE/requirements.txt" >&2
    cp "$HERE/requirements.txt" "$TO/requirements.txt"         # last, so that an interrupted installation is repeated
fi
echo "$TO/bin/python"
