#!/usr/bin/env bash
# For the scripts that fill $CACHE, who hold their lock then. Each touches the folders that its checkout uses.

# prune NAME...: removes the versions of these tools, $CACHE/NAME-VERSION/, that no checkout has used for 14 days.
prune() {
    local name
    for name; do
        find "$CACHE" -mindepth 1 -maxdepth 1 -type d -name "$name-[0-9a-g]*" -mtime +13 -exec rm -rf {} +
    done
}
