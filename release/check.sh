#!/usr/bin/env bash
# What needs an optimized build: the commit in two clones at different places gives the same release, and its program starts as the
# Deployment starts it: no capabilities, a root that cannot be written, no other file. It has no feature of tests. That for Windows starts under Wine, where it was built.
# Usage: check.sh FOLDER
set -euo pipefail
mkdir -p "$1"; work=$(cd "$1" && pwd)
source=$(git rev-parse --show-toplevel)

for clone in first the-second; do
    rm -rf "${work:?}/$clone"
    git clone --quiet --shared "$source" "$work/$clone"
    make -C "$work/$clone" --no-print-directory release IMAGE="${IMAGE:-registry.example/capw:check}" ${KUBECTL:+KUBECTL="$KUBECTL"}
done
diff "$work/first/out/release/SHA256SUMS" "$work/the-second/out/release/SHA256SUMS" || { echo "two clones gave different releases"; exit 1; }

program=$work/first/out/programs/amd64/capw
size=$(stat -c %s "$program")
[ "$size" -lt $((30 * 1024 * 1024)) ] || { echo "the program has $size bytes"; exit 1; }
for command in run guests; do
    help=$("$program" "$command" --help)
    case $help in *--wine-programs*) echo "capw $command has --wine-programs: it was built with the feature wine-guests"; exit 1 ;; esac
done
if command -v bwrap > /dev/null; then
    mkdir -p "$work/state"
    inside() { bwrap --unshare-all --uid 65532 --gid 65532 --cap-drop ALL --ro-bind "$work/first/out/root" / --tmpfs /var/lib/capw --ro-bind "$program" /capw -- "$@"; }
    make -C "$work/first" --no-print-directory image-root > /dev/null
    touch "$work/first/out/root/capw"
    inside /capw version
    inside /capw crds | cmp - <("$program" crds)
else
    echo "without bubblewrap: the program is not started without rights"
    "$program" version
fi
windows=$work/first/out/programs/windows/capw-node.exe
prefix=${CAPW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/capw}/tools/wine-prefix
# Wine has no HNS, so the stand-in of the tests is beside the program.
stand_in=$(bash "$source/e2e/tools/windows/build.sh" --path own)/computenetwork.dll
wine=/usr/lib/wine/wine64; [ -x "$wine" ] || wine=$(command -v wine64 || true)
if [ ! -f "$windows" ]; then
    echo "the image has no entry for Windows"
elif [ -n "$wine" ] && [ -d "$prefix" ] && [ -f "$stand_in" ]; then
    rm -rf "${work:?}/wine"; cp -a "$prefix" "$work/wine"
    cp "$stand_in" "$(dirname "$windows")"
    env -u TMPDIR WINEPREFIX="$work/wine" WINEDEBUG=-all DISPLAY= "$wine" "$windows" --version
    rm -rf "$work/wine"
else
    echo "without Wine, or before \`make parts\`: the program for Windows is not started"
fi
rm -rf "$work/first" "$work/the-second"
