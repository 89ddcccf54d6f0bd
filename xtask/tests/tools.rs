//! The cache of the programs that tests run.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, SystemTime};

#[test]
#[allow(clippy::disallowed_methods, reason = "folders are as old as the clock says")]
fn what_no_checkout_has_used_for_two_weeks_goes() {
    let cache = tempfile::tempdir().unwrap();
    for (folder, days) in [
        ("own-windows-1487005436", 15),
        ("own-windows-2941464068", 13),
        ("kubeadm-1.35.0", 15),
        ("kubeadm-1.36.3", 0),
        // Those of another lock, and what has no version.
        ("kubeadm-windows-1.35.0", 15),
        ("wine-prefix", 15),
    ] {
        let path = cache.path().join(folder);
        fs::create_dir_all(path.join("data")).unwrap();
        let used = SystemTime::now() - Duration::from_secs(days * 86_400 + 3600);
        File::open(path).unwrap().set_modified(used).unwrap();
    }
    let script = concat!("set -euo pipefail; . ", env!("CARGO_MANIFEST_DIR"), "/../e2e/tools/prune.sh; prune own-windows kubeadm etcd");
    assert!(Command::new("bash").args(["-c", script]).env("CACHE", cache.path()).status().unwrap().success());
    let mut left: Vec<_> = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, ["kubeadm-1.36.3", "kubeadm-windows-1.35.0", "own-windows-2941464068", "wine-prefix"]);
}
