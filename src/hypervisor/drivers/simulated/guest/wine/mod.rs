//! Guests of kind `Wine`: the Windows programs themselves carry out the plan, run by Wine in separate namespaces. The
//! kubelet, kubeadm, containerd and the service manager are real; the parts that Wine lacks (features, firewall, tasks, containers) are
//! recorded. Needs Linux with root, iproute2 and Wine, and the programs that e2e/tools/windows/build.sh builds. A rig of tests: releases are built
//! without the feature `wine-guests`, and have `wineless` instead.
//!
//! Each item's own test decides whether it is true, so that a cut at any moment, which may lose registry values that Wine has not written
//! yet, is detected and repaired.

mod disk;
mod items;
mod life;
mod machine;
mod prefix;
mod registry;
mod runner_machine;
mod services;

pub use self::life::live;
