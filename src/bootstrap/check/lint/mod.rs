//! Rules that check whether the settings of a node fit its minor of Kubernetes and Windows. They apply to the rendered documents and to the
//! users' own fields and flags alike.
//!
//! | Rule | Subject |
//! |---|---|
//! | L1 | cgroups, which Windows does not have |
//! | L2 | paths without a drive |
//! | L3 | the priority class |
//! | L4 | feature gates that are unknown, locked or missing |
//! | L5, L6 | eviction signals that are missing, or that Windows does not have |
//! | L7 | reserves below what Windows needs |
//! | L8 | flags that the minor does not have |
//! | L9, L10 | the version and form of kubeadm's configuration, and its preflight checks |
//! | L11 | the address of containerd's pipe |
//! | L12, L13 | containerd's configuration: its version, its network plug-in directories |
//! | L14 | kube-proxy: the source VIP, health checks |
//! | L15 | the graceful shutdown of a node |
//! | L16 | feature gates for things that only Linux has |
//! | L17 | who signs the kubelet's serving certificate |
//! | L18 | more pods than the pod network has addresses |
//! | L19 | credentials for images that the machine's image already has |
//! | L20 | fields that the minor does not have |
//! | L21 | values of the wrong type |
//! | L22 | fields that have no effect on Windows, or stop the kubelet there |
//! | L23 | fields and flags that CAPW or kubeadm sets |
//! | L24 | credential providers |
//! | L25 | secrets in the text of a script |
//! | L26 | installers that restart Windows on their own |
//! | L27 | a proxy without the networks of the nodes |

mod check;
mod credentials;
mod fields;
mod findings;
mod flags;
mod input;
mod node;

#[cfg(test)]
mod tests;

pub(in crate::bootstrap) use self::check::check;
