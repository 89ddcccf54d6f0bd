#!/usr/bin/env bash
# Makes what a Linux guest needs that stands for a Windows machine in a real VM: a kernel, its modules, busybox and `init`, and the
# tools that put them on a disk image. Everything comes from Debian's packages, which are unpacked below $CAPW_CACHE/tools/guest-VERSION/
# and not installed. Existing files are kept.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${CAPW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/capw}
mkdir -p "$CACHE/tools"; CACHE=$(cd "$CACHE/tools" && pwd)
TO=$CACHE/guest-$(cat "$HERE/build.sh" "$HERE/init" | cksum | cut -d ' ' -f 1)
if command -v flock > /dev/null; then exec 9> "$CACHE/lock-guest"; flock 9; fi
. "$HERE/../prune.sh"; touch -c "$TO"; prune guest
if [ -e "$TO/initrd.gz" ]; then exit 0; fi
if ! command -v apt-get > /dev/null; then
    echo "Guests of real VMs are not prepared: apt-get is missing, and their kernel comes from Debian's packages. Tests that run them are skipped."
    exit 0
fi

WORK=$TO.part
rm -rf "$WORK"; mkdir -p "$WORK/packages" "$WORK/modules"
cd "$WORK/packages"
kernel() { apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1; }
[ -n "$(kernel)" ] || apt-get update -q > /dev/null
apt-get download -q -o APT::Sandbox::User="$(id -un)" "$(kernel)" busybox-static syslinux syslinux-common shim-signed grub-efi-amd64-signed mtools dosfstools > /dev/null
for package in *.deb; do dpkg-deb -x "$package" "$WORK"; done
cd "$WORK"; rm -rf packages
mv boot/vmlinuz-* vmlinuz

# Modules in the order in which they can be loaded.
base=$(echo lib/modules/*) order=
bin/busybox depmod -b . "$(basename "$base")"
add() {     # add MODULE: after those that it needs
    local path needed
    path=$(grep -oE "^[^:]*/$1\.ko:" "$base/modules.dep" | tr -d :) || return 0        # it is part of the kernel
    for needed in $(sed -n "s#^$path: *##p" "$base/modules.dep"); do add "$(basename "$needed" .ko)"; done
    case " $order " in *" $path "*) ;; *) order="$order $path" ;; esac
}
for module in virtio_pci virtio_blk virtio_net e1000e ahci sd_mod sr_mod vfat nls_cp437 nls_ascii button evdev; do add "$module"; done
for path in $order; do cp "$base/$path" modules/; basename "$path"; done > modules/order

mkdir -p root/{bin,proc,sys,dev,image,vms,etc}
cp bin/busybox root/bin/; cp -R modules root/; cp "$HERE/init" root/init; chmod +x root/init
(cd root && find . | bin/busybox cpio -o -H newc 2> /dev/null | gzip -1) > initrd.gz
rm -rf root modules lib boot
mv "$WORK" "$TO"
echo "guest of real VMs: $(du -sh "$TO" | cut -f 1)"
