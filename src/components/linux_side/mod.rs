//! The pod network of a cluster as its Linux side shows it: the kind of network, and the settings that its Windows side must share.
//!
//! The nodes' own state has priority, because it is in use; DaemonSets, ConfigMaps and the network's own objects follow.

mod antrea;
mod api_server;
mod aws;
mod calico;
mod cluster;
mod detect;
mod dns;
mod family;
mod felix;
mod flannel;
mod kind;
mod kube_proxy;
mod node;
mod operator;
mod others;
mod ovn;
mod ranges;
mod read;
mod setting;
mod settings;
mod side;
mod source;

pub use self::antrea::Antrea;
pub use self::aws::Aws;
pub use self::calico::{Calico, Encapsulation, Pool};
pub use self::detect::ANNOTATIONS;
pub use self::dns::Dns;
pub use self::flannel::{Config, DATA, Flannel, NET_CONF, NODE_ARGUMENTS, Shown, TYPE};
pub use self::kind::Kind;
pub use self::kube_proxy::KubeProxy;
pub use self::node::{Node, is_windows};
pub use self::operator::{ENDPOINT, HOST, OF_LINUX, Operator, PORT};
pub use self::ovn::Ovn;
pub use self::read::read;
pub use self::setting::Setting;
pub use self::settings::Settings;
pub use self::side::{LinuxSide, Network};
pub use self::source::Origin;
