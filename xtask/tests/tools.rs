//! Tests of the cache of programs that tests run.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Returns which folders are left, given the days since their last use and the tools that `prune` gets. `is_full` simulates a full cache or disk.
#[allow(clippy::disallowed_methods, reason = "folders are as old as the clock says")]
fn left(folders: &[(&str, u64)], is_full: &str) -> Vec<String> {
    let cache = tempfile::tempdir().unwrap();
    for (folder, days) in folders {
        let path = cache.path().join(folder);
        fs::create_dir_all(path.join("data")).unwrap();
        let used = SystemTime::now() - Duration::from_secs(days * 86_400 + 3600);
        File::open(path).unwrap().set_modified(used).unwrap();
    }
    let prune = concat!(env!("CARGO_MANIFEST_DIR"), "/../e2e/tools/prune.sh");
    let script = format!("set -euo pipefail; . {prune}; is_full() {{ {is_full}; }}; prune own-windows kubeadm etcd");
    assert!(Command::new("bash").args(["-c", &script]).env("CACHE", cache.path()).status().unwrap().success());
    let mut left: Vec<_> = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort_unstable();
    left
}

#[test]
fn what_no_checkout_has_used_for_two_weeks_goes() {
    let folders = [
        ("own-windows-1487005436", 15),
        ("own-windows-2941464068", 13),
        ("kubeadm-1.35.0", 15),
        ("kubeadm-1.36.3", 0),
        // Folders of another lock file, and a folder without a version.
        ("kubeadm-windows-1.35.0", 15),
        ("wine-prefix", 15),
    ];
    assert_eq!(left(&folders, "false"), ["kubeadm-1.36.3", "kubeadm-windows-1.35.0", "own-windows-2941464068", "wine-prefix"]);
}

#[test]
fn of_a_full_cache_the_oldest_go_and_nothing_that_was_used_today() {
    let folders = [("etcd-3.6.0", 3), ("kubeadm-1.34.9", 9), ("kubeadm-1.35.0", 5), ("kubeadm-1.36.3", 0), ("wine-prefix", 9)];
    assert_eq!(left(&folders, "[ -d $CACHE/kubeadm-1.35.0 ]"), ["etcd-3.6.0", "kubeadm-1.36.3", "wine-prefix"]);
    assert_eq!(left(&folders, "true"), ["kubeadm-1.36.3", "wine-prefix"]);
}
