#!/usr/bin/env bash
# Makes a disk image that boots a guest with the program capw, by BIOS or by UEFI, for an API server on the host's loopback.
# Usage: image.sh CAPW PORT NAME FILE      NAME: the image's, which says which Windows the guest is
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${CAPW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/capw}
FROM=$(cd "$CACHE/tools/guest-$(cat "$HERE/build.sh" "$HERE/init" | cksum | cut -d ' ' -f 1)" && pwd)
PROGRAM=$1 PORT=$2 NAME=$3 FILE=$4
WORK=$(mktemp -d); trap 'rm -rf "$WORK"' EXIT

# The program with the libraries that it is linked to. It stays on the disk: as a part of the kernel's archive, the firmware would measure it and
# the kernel unpack it at each start, which takes QEMU most of the time where it translates.
mkdir -p "$WORK/root/bin"
strip -o "$WORK/root/bin/capw" "$PROGRAM"
for library in $(ldd "$PROGRAM" | grep -oE '/[^ ]+'); do mkdir -p "$WORK/root$(dirname "$library")"; cp -L "$library" "$WORK/root$library"; done
cat > "$WORK/syslinux.cfg" <<EOF
DEFAULT guest
LABEL guest
KERNEL vmlinuz
INITRD initrd.gz
APPEND console=ttyS0,115200 quiet panic=-1 capw.port=$PORT capw.image=$NAME
EOF
cat > "$WORK/grub.cfg" <<EOF
linux /vmlinuz console=ttyS0,115200 quiet panic=-1 capw.port=$PORT capw.image=$NAME
initrd /initrd.gz
boot
EOF
truncate -s 256M "$FILE"
"$FROM/sbin/mkfs.vfat" "$FILE" > /dev/null
export MTOOLS_SKIP_CHECK=1 PATH=$FROM/usr/bin:$PATH
mcopy -i "$FILE" "$FROM/vmlinuz" "$FROM/initrd.gz" "$WORK/syslinux.cfg" ::
mcopy -s -i "$FILE" "$WORK"/root/* ::
syslinux --install "$FILE"
# With Secure Boot, the firmware starts Microsoft's signature only: Debian's shim, which starts what Debian has signed.
mmd -i "$FILE" ::/EFI ::/EFI/BOOT ::/EFI/debian
mcopy -i "$FILE" "$FROM/usr/lib/shim/shimx64.efi.signed" ::/EFI/BOOT/BOOTX64.EFI
mcopy -i "$FILE" "$FROM/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed" ::/EFI/BOOT/grubx64.efi
mcopy -i "$FILE" "$WORK/grub.cfg" ::/EFI/debian/grub.cfg
