//! Felix, Calico's agent: its settings come from an object or from the environment of its pods.

use super::cluster::Cluster;
use super::setting::{Setting, setting};
use crate::components::place::{ObjectRef, Place};
use crate::components::workloads::Program;

/// The API group of Calico's objects. Without Calico's API server, the group has the prefix `crd.`.
pub(super) const GROUP: &str = "projectcalico.org";
/// The highest number of 24 bits.
const MOST_VNI: u32 = (1 << 24) - 1;

/// Reads a setting. The environment, in which all values are text, has priority over the object.
fn written<T>(
    cluster: &Cluster<'_>,
    variable: &str,
    field: &str,
    in_text: impl Fn(&Place<'_>) -> Option<T>,
    plain: impl Fn(&Place<'_>) -> Option<T>,
) -> Option<Setting<T>> {
    let set = cluster.linux_set(Program::Calico);
    let place = set.and_then(|set| set.container(Program::Calico)?.variable(variable, set.namespace(), cluster.objects));
    if let Some((place, value)) = place.and_then(|place| in_text(&place).map(|value| (place, value))) {
        return Some(Setting { field: format!("{} ({variable})", place.field), ..setting(&place, value) });
    }
    let place = cluster.objects.named(GROUP, "FelixConfiguration", None, "default")?.at("spec").at(field);
    Some(setting(&place, plain(&place)?))
}

/// Reads a number, or Felix's default if none is set.
fn number(cluster: &Cluster<'_>, variable: &str, field: &str, most: u32, default: u32) -> Setting<u32> {
    let found = written(cluster, variable, field, |place| place.number_in_text(most), |place| place.number(most));
    found.unwrap_or_else(|| Setting { object: ObjectRef::new("FelixConfiguration", None, "default"), field: format!("spec.{field}"), value: default })
}

pub(super) fn vni(cluster: &Cluster<'_>) -> Setting<u32> {
    number(cluster, "FELIX_VXLANVNI", "vxlanVNI", MOST_VNI, 4096)
}

pub(super) fn port(cluster: &Cluster<'_>) -> Setting<u32> {
    number(cluster, "FELIX_VXLANPORT", "vxlanPort", u32::from(u16::MAX), 4789)
}

/// Reads the dataplane if it is neither iptables nor nftables.
pub(super) fn dataplane(cluster: &Cluster<'_>, installation: Option<&Place<'_>>) -> Option<Setting<String>> {
    const KNOWN: [&str; 4] = ["Iptables", "Nftables", "BPF", "VPP"];
    let of_operator = installation.and_then(|installation| {
        let place = installation.along("spec.calicoNetwork.linuxDataplane");
        let value = place.one_of(&KNOWN).filter(|name| ["BPF", "VPP"].contains(name))?;
        Some(setting(&place, value.to_owned()))
    });
    of_operator.or_else(|| {
        let bpf =
            written(cluster, "FELIX_BPFENABLED", "bpfEnabled", |place| place.flag_in_text(), |place| place.flag()).filter(|setting| setting.value)?;
        Some(Setting { object: bpf.object, field: bpf.field, value: "BPF".into() })
    })
}
