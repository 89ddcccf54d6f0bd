//! THE LINUX SIDE OF A CLUSTER (pure): its pod network, whether Windows nodes can join the network, and the changes that are needed if they cannot.
//!
//! [`read`] takes recorded objects, from a cluster or a file, and returns the network with its settings. [`judge`] reports the settings that Windows
//! nodes cannot use: reason, object, field, and the patch or the procedure. [`role()`] states who installs the network on Windows nodes, and [`text`]
//! describes all of it for people. [`next_step`] is the next change of the Linux side, if CAPW may change it. [`windows_side()`] returns the objects
//! that install the network on Windows nodes, if CAPW does that, and [`windows_pods()`] the objects that pods on Windows nodes need in any cluster.
//! [`Probe`] creates the pods that test a new Windows node.

mod brought;
mod change;
mod cidr;
mod compatible;
mod facts;
mod finding;
mod linux_side;
mod manager;
mod objects;
mod place;
mod plan;
mod probe;
mod role;
mod room;
mod scheduling;
mod services;
mod show;
mod wanted;
mod windows_pods;
mod windows_side;
mod workloads;
mod writers;

pub use self::brought::{OF_NETWORK, PODS, kind_of, removed};
pub use self::change::{Step, Write, next_step};
pub use self::cidr::Cidr;
pub use self::compatible::judge;
pub use self::facts::{facts, needed};
pub use self::finding::{Finding, Patch, is_warning};
pub use self::linux_side::{Dns, Kind, KubeProxy, LinuxSide, Network, Node, Origin, Settings, read};
pub use self::place::{ObjectRef, Unreadable, is_of_kind};
pub use self::plan::{Difference, Taken, difference, outdated, owned, taken};
pub use self::probe::{ANSWER, NAME_SERVERS, PORT, Probe, Probing, SERVICES, is_outdated, probed};
pub use self::role::{Role, role};
pub use self::room::pods_per_node;
pub use self::scheduling::misplaced;
pub use self::services::beyond_windows;
pub use self::show::text;
pub use self::wanted::{FIRST, wanted};
pub use self::windows_pods::{Changes, Effect, FOR_PODS, Host, POD_RULES, changes, is_among, wanted_classes, wanted_for_pods, windows_pods};
pub use self::windows_side::{NAMESPACE, Parameters, Refusal, brought_by_another, windows_side};
pub use self::writers::{Contested, SET_BACK, is_set_back_later, writer_since};

#[cfg(test)]
mod tests;
