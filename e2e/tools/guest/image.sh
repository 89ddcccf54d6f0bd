#!/usr/bin/env bash
# Makes a disk image that boots a guest with the program capw, for an API server on the host's loopback.
# Usage: image.sh CAPW PORT NAME FILE      NAME: the image's, which says which Windows the guest is
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${CAPW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/capw}
FROM=$(cd "$CACHE/tools/guest-$(cat "$HERE/build.sh" "$HERE/init" | cksum | cut -d ' ' -f 1)" && pwd)
PROGRAM=$1 PORT=$2 NAME=$3 FILE=$4
WORK=$(mktemp -d); trap 'rm -rf "$WORK"' EXIT

# The program with the libraries that it is linked to, as a second archive that the kernel unpacks over the first.
mkdir -p "$WORK/root/bin"
strip -o "$WORK/root/bin/capw" "$PROGRAM"
for library in $(ldd "$PROGRAM" | grep -oE '/[^ ]+'); do mkdir -p "$WORK/root$(dirname "$library")"; cp -L "$library" "$WORK/root$library"; done
(cd "$WORK/root" && find . | "$FROM/bin/busybox" cpio -o -H newc 2> /dev/null | gzip -1) > "$WORK/capw.gz"
cat > "$WORK/syslinux.cfg" <<EOF
DEFAULT guest
LABEL guest
KERNEL vmlinuz
INITRD initrd.gz,capw.gz
APPEND console=ttyS0,115200 quiet panic=-1 capw.port=$PORT capw.image=$NAME
EOF
truncate -s 256M "$FILE"
"$FROM/sbin/mkfs.vfat" "$FILE" > /dev/null
export MTOOLS_SKIP_CHECK=1 PATH=$FROM/usr/bin:$PATH
mcopy -i "$FILE" "$FROM/vmlinuz" "$FROM/initrd.gz" "$WORK/capw.gz" "$WORK/syslinux.cfg" ::
syslinux --install "$FILE"
