#!/usr/bin/env bash
# For the scripts that fill $CACHE, who hold their lock then. Each touches the folders that its checkout uses.

# Whether the tools take more than 15 GiB, or leave less than 10 GiB of the disk.
is_full() {
    [ "$(du -sk "$CACHE" | cut -f 1)" -gt $((15 * 1048576)) ] || [ "$(df -Pk "$CACHE" | awk 'NR == 2 { print $4 }')" -lt $((10 * 1048576)) ]
}

# prune NAME...: removes the versions of these tools, $CACHE/NAME-VERSION/, that no checkout has used for 14 days; while the cache is full, also
# those that none has used for a day, the oldest first.
prune() {
    local name oldest named=()
    for name; do
        find "$CACHE" -mindepth 1 -maxdepth 1 -type d -name "$name-[0-9a-g]*" -mtime +13 -exec rm -rf {} +
        named+=(-o -name "$name-[0-9a-g]*")
    done
    while is_full; do
        oldest=$(find "$CACHE" -mindepth 1 -maxdepth 1 -type d \( "${named[@]:1}" \) -mtime +0 -printf '%T@ %p\n' | sort -n | sed -n '1s/^[^ ]* //p')
        [ -n "$oldest" ] || break
        rm -rf "$oldest"
    done
}
