#!/usr/bin/env bash
# Builds the Windows programs that Wine guests run and that judge what capw renders: kubelet, kubeadm, kube-proxy and
# kube-log-runner of each Kubernetes minor, agnhost of the newest, and containerd of each line, from the Go modules pinned in the folders next to this file;
# stand-ins for what Wine lacks, from the C files here; and with them the Wine prefix that guests are copied from. They go into the cache
# of ../build.sh, as $CAPW_CACHE/tools/NAME-windows-VERSION/NAME.exe and $CAPW_CACHE/tools/wine-prefix/. Existing programs are kept.
# Usage: build.sh               the newest minor and the newest line of containerd: 6 min on 2 cores the first time
#        build.sh all           every folder
#        build.sh --path NAME   where a program is, built or not: agnhost, flannel, host-local, win-bridge, win-overlay, or own for what is ours
# To update: change the versions in go.mod (the staging modules v0.X.Y belong to kubernetes v1.X.Y), then run go mod tidy.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${CAPW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/capw}
mkdir -p "$CACHE/tools"; CACHE=$(cd "$CACHE/tools" && pwd)
version() { sed -n "s#^.*[[:space:]]$2 v\([0-9.]*\).*#\1#p" "$HERE/$1/go.mod" | head -n 1; }        # version FOLDER MODULE
newest() { cd "$HERE" && printf '%s\n' kubernetes-* | sort -V | tail -n 1; }
FLANNEL=github.com/flannel-io/flannel PLUGINS=github.com/containernetworking/plugins
OWN=$CACHE/own-windows-$(cd "$HERE/../../.." && cat Cargo.lock e2e/hns/Cargo.toml e2e/hns/src/*.rs e2e/hns/src/bin/*.rs node/Cargo.toml node/src/*.rs | cksum | cut -d ' ' -f 1)
if [ "${1:-}" = --path ]; then
    case $2 in
        agnhost) echo "$CACHE/agnhost-windows-$(version "$(newest)" k8s.io/kubernetes)" ;;
        flannel) echo "$CACHE/flannel-windows-$(version flannel-0.28 "$FLANNEL")" ;;
        host-local | win-bridge | win-overlay) echo "$CACHE/$2-windows-$(version cni-1.9 "$PLUGINS")" ;;
        *) echo "$OWN" ;;
    esac
    exit
fi
command -v go > /dev/null || { echo "build.sh: the program go is missing; install Go 1.26 or later, https://go.dev/doc/install" >&2; exit 1; }
if command -v flock > /dev/null; then exec 9> "$CACHE/lock-windows"; flock 9; fi
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

MINGW=${MINGW:-x86_64-w64-mingw32-gcc}
if ! command -v "$MINGW" > /dev/null; then
    echo "Windows programs are not built: $MINGW is missing (Debian: gcc-mingw-w64-x86-64). Tests that run them are skipped."
    exit 0
fi

# The prefix of a fresh machine: Wine's files, the stand-ins, no drive but C:. Rebuilt when Wine or a C file changes.
prefix() {
    local to=$CACHE/wine-prefix work=$CACHE/wine-prefix.part version windows
    version="$("$WINE" --version) $(cat "$HERE"/*.c | sha256sum)"
    if [ "$(cat "$to/capw-version" 2> /dev/null)" = "$version" ]; then return; fi
    rm -rf "$work"; mkdir -p "$work"
    windows=$work/drive_c/windows
    (cd "$work" && export WINEPREFIX=$work WINEDEBUG=-all DISPLAY=
     "$WINE" wineboot -i && "$WINE" reg add 'HKCU\Software\Wine' /v Version /d win10 /f && "${WINE%/*}/wineserver" -w) > /dev/null 2>&1
    find "$work/dosdevices" -type l ! -name c: -delete
    for dll in pdh bcryptprimitives; do "$MINGW" -O1 -Wall -shared -o "$windows/system32/$dll.dll" "$HERE/$dll.c" -ladvapi32; done
    for exe in console hold service; do "$MINGW" -O1 -Wall -municode -o "$windows/$exe.exe" "$HERE/$exe.c" -ladvapi32; done
    echo "$version" > "$work/capw-version"
    rm -rf "$to"; mv "$work" "$to"
    echo "wine-prefix: $version"
}
WINE=/usr/lib/wine/wine64
[ -x "$WINE" ] || WINE=$(readlink -f "$(command -v wine64 || true)")
if [ -x "$WINE" ]; then prefix; else echo "Wine guests are not prepared: wine64 is missing (Debian: wine64). Tests that run them are skipped."; fi

# Replaces two calls of Go's standard library that Wine 8 does not support: a symbolic link becomes a copy, and a listener on a Unix
# socket one on TCP (the kubelet's certificate store and device plug-ins use them). All programs share the overlay and so their build cache.
root=$(go env GOROOT) overlay=$CACHE/windows-overlay-$(go env GOVERSION)
insert() {      # insert FILE AFTER-LINE CODE: copies the file and adds the code after the line, which must occur once
    local copy
    copy=$overlay/$(basename "$1")
    [ "$(grep -cxF "$2" "$root/src/$1")" = 1 ] || { echo "build.sh: $1 of $(go env GOVERSION) does not have this line once: $2" >&2; exit 1; }
    LINE=$2 CODE=$3 awk '{ print } $0 == ENVIRON["LINE"] { print ENVIRON["CODE"] }' "$root/src/$1" > "$copy"
}
touch -c "$overlay"
if [ ! -e "$overlay/overlay.json" ]; then
    mkdir -p "$overlay"
    insert os/file_windows.go 'func Symlink(oldname, newname string) error {' \
        '	if content, err := ReadFile(oldname); err == nil { return WriteFile(newname, content, 0600) }'
    insert net/dial.go 'func Listen(network, address string) (Listener, error) {' \
        '	if network == "unix" { network, address = "tcp", "127.0.0.1:0" }'
    printf '{"Replace": {"%s": "%s", "%s": "%s"}}\n' "$root/src/os/file_windows.go" "$overlay/file_windows.go" \
        "$root/src/net/dial.go" "$overlay/dial.go" > "$overlay/overlay.json"
fi

build() {       # build FOLDER MODULE LDFLAGS PACKAGE...: builds all packages in one run, each into its own folder
    local from=$SECONDS folder=$1 version flags=$3 package name missing=() work
    version=$(version "$folder" "$2")
    shift 3
    for package; do
        name=$(basename "$package")
        touch -c "$CACHE/$name-windows-$version"
        [ -x "$CACHE/$name-windows-$version/$name.exe" ] || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    work=$CACHE/windows-$version.part
    rm -rf "$work"; mkdir -p "$work"
    (cd "$HERE/$folder" && GOOS=windows GOARCH=amd64 go build -overlay "$overlay/overlay.json" -buildvcs=false -trimpath \
        -ldflags "-s -w $flags" -o "$work/" "${missing[@]}")
    for package in "${missing[@]}"; do
        name=$(basename "$package")
        mkdir -p "$CACHE/$name-windows-$version"
        mv "$work/$name.exe" "$CACHE/$name-windows-$version/"
    done
    rmdir "$work"
    echo "$folder: $version for Windows: $((SECONDS - from)) s"
}

containerd() {  # containerd FOLDER MODULE
    build "$1" "$2" "-X $2/version.Version=v$(version "$1" "$2")" "$2/cmd/containerd"
}

kubernetes() {  # kubernetes FOLDER
    local version minor variables=k8s.io/component-base/version
    version=$(version "$1" k8s.io/kubernetes) minor=${1##*.}
    build "$1" k8s.io/kubernetes "-X $variables.gitVersion=v$version -X $variables.gitMajor=1 -X $variables.gitMinor=$minor -X $variables.gitTreeState=clean" \
        k8s.io/kubernetes/cmd/{kubelet,kubeadm,kube-proxy} k8s.io/component-base/logs/kube-log-runner
}

# The program of the pods that try out nodes.
agnhost() {
    build "$(newest)" k8s.io/kubernetes "" k8s.io/kubernetes/test/images/agnhost
}

# Flannel's daemon, and the CNI plugins that it uses.
flannel() {
    build flannel-0.28 "$FLANNEL" "-X $FLANNEL/pkg/version.Version=v$(version flannel-0.28 "$FLANNEL")" "$FLANNEL"
    build cni-1.9 "$PLUGINS" "-X $PLUGINS/pkg/utils/buildversion.BuildVersion=v$(version cni-1.9 "$PLUGINS")" \
        "$PLUGINS"/plugins/ipam/host-local "$PLUGINS"/plugins/main/windows/win-{bridge,overlay}
}

# Our own: the node program, and the stand-ins for HNS, of which programs load one of two libraries that are the same file, and for PowerShell.
own() {
    local target=x86_64-pc-windows-gnu work=$CACHE/own-windows.part from=$SECONDS
    touch -c "$OWN"
    [ ! -e "$OWN/vmcompute.dll" ] || return 0
    if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ] && ! rustup target add "$target" > /dev/null 2>&1; then
        echo "capw-node.exe and the stand-ins for HNS and PowerShell are not built: rustup target add $target fails. Tests that run them are skipped."
        return 0
    fi
    # The linker leaves files where temporary ones belong.
    mkdir -p "$work/tmp"
    (cd "$HERE/../../.." && TMPDIR=$work/tmp CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=$MINGW cargo build --quiet --locked --release \
        --package capw-node --package capw-hns --target "$target" --target-dir "$work")
    rm -rf "$OWN.part"; mkdir -p "$OWN.part"
    cp "$work/$target/release/capw-node.exe" "$work/$target/release/powershell.exe" "$OWN.part/"
    cp "$work/$target/release/capw_hns.dll" "$OWN.part/computenetwork.dll"
    cp "$OWN.part/computenetwork.dll" "$OWN.part/vmcompute.dll"
    mv "$OWN.part" "$OWN"
    rm -rf "$work"
    echo "capw-node.exe and the stand-ins for HNS and PowerShell: $((SECONDS - from)) s"
}

flannel
own
agnhost
containerd containerd-2.3 github.com/containerd/containerd/v2
if [ "${1:-}" = all ]; then containerd containerd-1.7 github.com/containerd/containerd; fi
mapfile -t minors < <(cd "$HERE" && printf '%s\n' kubernetes-* | sort -V)
if [ "${1:-}" != all ]; then minors=("$(newest)"); fi
for folder in "${minors[@]}"; do kubernetes "$folder"; done

. "$HERE/../prune.sh"
prune {agnhost,kubelet,kubeadm,kube-proxy,kube-log-runner,containerd,flannel,host-local,win-bridge,win-overlay,own}-windows windows-overlay
