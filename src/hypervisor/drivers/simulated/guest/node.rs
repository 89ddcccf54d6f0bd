//! The Node of a guest, as the kubelet would register it from the rendered configuration and the VM's size. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::kubeadm::KubeletConfiguration;

/// The kubelet's needs at every start; stored on the guest's disk by the join.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Kubelet {
    pub node: String,
    /// `https://host:port`.
    pub server: String,
    /// The version of Kubernetes, e.g. `v1.36.3`; empty if the plan does not have it.
    pub version: String,
    pub labels: BTreeMap<String, String>,
    pub configuration: KubeletConfiguration,
}

/// The machine below the kubelet.
pub struct Hardware<'a> {
    pub image: &'a str,
    pub cpus: u32,
    pub memory_mib: u64,
    pub address: String,
    /// The UUID of the VM.
    pub uuid: String,
}

/// The product and build of a Windows Server image, by its name.
fn release(image: &str) -> (&'static str, &'static str) {
    match image {
        name if name.contains("2019") => ("Windows Server 2019 Datacenter", "10.0.17763"),
        name if name.contains("2025") => ("Windows Server 2025 Datacenter", "10.0.26100"),
        _ => ("Windows Server 2022 Datacenter", "10.0.20348"),
    }
}

/// The build of Windows in an image, by its name.
pub fn build(image: &str) -> u32 {
    release(image).1.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// The Node with its status at its registration at `now`.
pub fn node(kubelet: &Kubelet, hardware: &Hardware<'_>, now: Timestamp) -> Node {
    let (product, build) = release(hardware.image);
    let mut labels = kubelet.labels.clone();
    for (key, value) in [
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "windows"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &kubelet.node),
        ("kubernetes.io/os", "windows"),
        ("node.kubernetes.io/windows-build", build),
    ] {
        labels.insert(key.into(), value.into());
    }
    let capacity = Resources {
        milli_cpu: u64::from(hardware.cpus) * 1000,
        memory_kib: hardware.memory_mib << 10,
        pods: kubelet.configuration.max_pods.unwrap_or(110),
    };
    let address = |type_: &str, address: &str| NodeAddress { type_: type_.into(), address: address.into() };
    Node {
        metadata: ObjectMeta {
            name: Some(kubelet.node.clone()),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([("volumes.kubernetes.io/controller-managed-attach-detach".into(), "true".into())])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: kubelet.configuration.provider_id.clone(),
            taints: (!kubelet.configuration.register_with_taints.is_empty()).then(|| kubelet.configuration.register_with_taints.clone()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            addresses: Some(vec![address("Hostname", &kubelet.node), address("InternalIP", &hardware.address)]),
            allocatable: Some(capacity.less(&kubelet.configuration).quantities()),
            capacity: Some(capacity.quantities()),
            conditions: Some(conditions(now)),
            daemon_endpoints: Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: 10_250 }) }),
            node_info: Some(NodeSystemInfo {
                architecture: "amd64".into(),
                container_runtime_version: "containerd://2.1.0".into(),
                kernel_version: format!("{build}.0"),
                kubelet_version: kubelet.version.clone(),
                machine_id: kubelet.node.clone(),
                operating_system: "windows".into(),
                os_image: product.into(),
                system_uuid: hardware.uuid.to_uppercase(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

/// The conditions of a healthy node.
pub fn conditions(now: Timestamp) -> Vec<NodeCondition> {
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    .into_iter()
    .map(|(type_, status, reason, message)| NodeCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    })
    .collect()
}

struct Resources {
    milli_cpu: u64,
    memory_kib: u64,
    pods: i64,
}

impl Resources {
    /// The rest for pods: without the reserves and the eviction threshold.
    fn less(&self, configuration: &KubeletConfiguration) -> Self {
        let reserved = |key: &str, read: &dyn Fn(&str) -> u64| -> u64 {
            [&configuration.system_reserved, &configuration.kube_reserved]
                .into_iter()
                .filter_map(|reserve| reserve.get(key))
                .map(|text| read(text))
                .sum()
        };
        let kib = |text: &str| memory_kib(text, self.memory_kib);
        let evicted = configuration.eviction_hard.get("memory.available").map_or(0, |text| kib(text));
        Self {
            milli_cpu: self.milli_cpu.saturating_sub(reserved("cpu", &milli_cpu)),
            memory_kib: self.memory_kib.saturating_sub(reserved("memory", &kib)).saturating_sub(evicted),
            pods: self.pods,
        }
    }

    fn quantities(&self) -> BTreeMap<String, Quantity> {
        let cpu = if self.milli_cpu.is_multiple_of(1000) { (self.milli_cpu / 1000).to_string() } else { format!("{}m", self.milli_cpu) };
        [("cpu", cpu), ("memory", format!("{}Ki", self.memory_kib)), ("pods", self.pods.to_string())]
            .into_iter()
            .map(|(key, text)| (key.to_owned(), Quantity(text)))
            .collect()
    }
}

/// Thousandths of a processor in `2`, `500m` or `0.5`.
fn milli_cpu(text: &str) -> u64 {
    if let Some(milli) = text.strip_suffix('m') {
        return milli.parse().unwrap_or(0);
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    whole.parse::<u64>().unwrap_or(0).saturating_mul(1000) + part.parse::<u64>().unwrap_or(0)
}

/// KiB in `500Mi`, `1Gi`, `1048576` or `5%` of `all`.
fn memory_kib(text: &str, all: u64) -> u64 {
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse::<u64>().map_or(0, |percent| all / 100 * percent);
    }
    for (unit, kib) in [("Ki", 1), ("Mi", 1 << 10), ("Gi", 1 << 20), ("Ti", 1 << 30)] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<u64>().unwrap_or(0).saturating_mul(kib);
        }
    }
    text.parse::<u64>().unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubelet() -> Kubelet {
        let configuration = serde_json::json!({
            "providerID": "windows://lab/x", "maxPods": 30, "registerWithTaints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}], "systemReserved": {"cpu": "250m", "memory": "2Gi"},
            "kubeReserved": {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "1Gi"}, "evictionHard": {"memory.available": "500Mi", "nodefs.available": "10%"}
        });
        Kubelet {
            node: "win-1".into(),
            server: "https://127.0.0.1:6443".into(),
            version: "v1.36.3".into(),
            labels: BTreeMap::from([("zone".into(), "a".into())]),
            configuration: serde_json::from_value(configuration).unwrap(),
        }
    }

    #[test]
    fn the_node_of_a_machine() {
        let hardware = Hardware { image: "windows-server-2025", cpus: 4, memory_mib: 8192, address: "10.1.2.3".into(), uuid: "ab".into() };
        let node = serde_json::to_value(node(&kubelet(), &hardware, Timestamp::UNIX_EPOCH)).unwrap();
        assert_eq!(
            node["spec"],
            serde_json::json!({"providerID": "windows://lab/x", "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]})
        );
        assert_eq!(node["metadata"]["labels"]["node.kubernetes.io/windows-build"], "10.0.26100");
        assert_eq!(node["metadata"]["labels"]["zone"], "a");
        assert_eq!(node["status"]["capacity"], serde_json::json!({"cpu": "4", "memory": "8388608Ki", "pods": "30"}));
        let memory = (8192 - 2048 - 512 - 500) * 1024;
        assert_eq!(node["status"]["allocatable"], serde_json::json!({"cpu": "3650m", "memory": format!("{memory}Ki"), "pods": "30"}));
        assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.36.3");
    }

    #[test]
    fn amounts() {
        for (text, milli) in [("2", 2000), ("500m", 500), ("0.5", 500), ("1.25", 1250), ("x", 0)] {
            assert_eq!(milli_cpu(text), milli, "{text}");
        }
        for (text, kib) in [("1Gi", 1 << 20), ("500Mi", 512_000), ("1048576", 1024), ("5%", 50), ("", 0)] {
            assert_eq!(memory_kib(text, 1000), kib, "{text}");
        }
    }
}
