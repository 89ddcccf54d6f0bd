//! The next Node of a pool: size less reserves, labels, taints. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::wire::NodeGroupAutoscalingOptions;
use super::wire::node::{Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, ObjectMeta, Quantity, Taint};
use crate::api::bootstrap_config::{BUILD_LABEL, WindowsBootstrapConfigSpec};
use crate::api::name::mebibytes;
use crate::bootstrap::render::kubelet::{lasting_taints, node_labels};
use crate::bootstrap::render::reserves::{Machine, reserves_of};
use crate::kinds::pool::decide::template::Template;

/// Returns the Node, or why the template does not result in one. `pods_per_node`: how many pods have an address on a Node, if that is known.
pub fn node(name: &str, template: &Template, pods_per_node: Option<u64>) -> Result<Node, String> {
    let default = WindowsBootstrapConfigSpec::default();
    let bootstrap = template.bootstrap.as_ref().unwrap_or(&default);
    let machine = &template.machine;
    let cpus = u32::try_from(machine.cpus).unwrap_or_default();
    let memory = mebibytes(&machine.memory).map_err(|e| e.to_string())?;
    let disk = machine.system_disk.as_deref().map(mebibytes).transpose().map_err(|e| e.to_string())?;
    let size = Machine { spec: bootstrap, cpus: Some(cpus), memory_mib: Some(memory), system_disk_gib: disk.map(|mib| mib >> 10), pods_per_node };
    let reserves = reserves_of(size).map_err(|e| e.to_string())?;
    let kept = |of: fn(&crate::bootstrap::render::reserves::Amount) -> u64| of(&reserves.system).saturating_add(of(&reserves.kube));
    let pods = reserves.max_pods.to_string();
    let mut capacity = vec![("cpu", cpus.to_string()), ("memory", format!("{memory}Mi")), ("pods", pods.clone())];
    let mut allocatable = vec![
        ("cpu", format!("{}m", (u64::from(cpus) * 1000).saturating_sub(kept(|a| a.milli_cpu)))),
        ("memory", format!("{}Mi", memory.saturating_sub(kept(|a| a.memory_mib)).saturating_sub(reserves.eviction_mib))),
        ("pods", pods),
    ];
    if let Some(disk) = disk {
        // The page file is on the same disk.
        let left = disk.saturating_sub(reserves.page_file_mib);
        capacity.push(("ephemeral-storage", format!("{disk}Mi")));
        allocatable.push(("ephemeral-storage", format!("{}Mi", left.saturating_sub(kept(|a| a.ephemeral_mib)))));
    }
    let build = bootstrap.windows_release.version();
    let mut labels: BTreeMap<String, String> = [
        ("kubernetes.io/os", "windows"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", name),
        (BUILD_LABEL, build.as_str()),
        ("beta.kubernetes.io/os", "windows"),
        ("beta.kubernetes.io/arch", "amd64"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    labels.extend(node_labels(bootstrap));
    let taints = lasting_taints(bootstrap).into_iter().map(|taint| Taint {
        key: Some(taint.key),
        value: taint.value,
        effect: Some(format!("{:?}", taint.effect)),
    });
    Ok(Node {
        metadata: Some(ObjectMeta { name: Some(name.to_owned()), labels, annotations: BTreeMap::new() }),
        spec: Some(NodeSpec { provider_id: None, taints: taints.collect() }),
        status: Some(NodeStatus {
            capacity: quantities(capacity),
            allocatable: quantities(allocatable),
            conditions: vec![NodeCondition { r#type: Some("Ready".into()), status: Some("True".into()), reason: Some("KubeletReady".into()) }],
            node_info: Some(NodeSystemInfo {
                kernel_version: Some(build),
                kubelet_version: template.version.clone(),
                operating_system: Some("windows".into()),
                architecture: Some("amd64".into()),
            }),
        }),
    })
}

fn quantities(values: Vec<(&str, String)>) -> BTreeMap<String, Quantity> {
    values.into_iter().map(|(key, value)| (key.to_owned(), Quantity { string: Some(value) })).collect()
}

/// Returns options for the autoscaler; `None`: its own options are right. Any answer sets its limit for the start of a registered node to 0,
/// because its client (1.36) does not carry that option. So options are sent only where a machine of the template may take longer than the
/// autoscaler waits.
pub fn options(template: &Template, defaults: &NodeGroupAutoscalingOptions) -> Option<NodeGroupAutoscalingOptions> {
    let needed = Duration::from_secs(u64::try_from(template.machine.join_deadline_seconds).unwrap_or_default());
    let waits = defaults.max_node_provision_duration.and_then(|d| Duration::try_from(d).ok()).unwrap_or_default();
    let needed = prost_types::Duration::try_from(needed).ok().filter(|_| needed > waits)?;
    Some(NodeGroupAutoscalingOptions { max_node_provision_duration: Some(needed), ..*defaults })
}
