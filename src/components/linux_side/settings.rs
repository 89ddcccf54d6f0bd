//! The settings of the pod network, which differ by its kind.

use super::antrea::Antrea;
use super::aws::Aws;
use super::calico::Calico;
use super::flannel::Flannel;
use super::ovn::Ovn;

/// The settings that only one kind of network has.
#[derive(Clone, Debug, PartialEq)]
pub enum Settings {
    Flannel(Flannel),
    Calico(Box<Calico>),
    Antrea(Antrea),
    Ovn(Ovn),
    Aws(Aws),
    /// The network has no settings that matter.
    None,
    /// The reason why no network was recognized.
    Unknown(String),
}
