//! A thousand Windows nodes and their pods, as kubelets and flanneld write them.

use serde_json::{Value, json};

pub const NODES: usize = 1000;

/// Returns a verified Windows node, as its kubelet, flanneld and Cluster API write it.
pub fn node(at: usize) -> Value {
    // The part follows the parts of the Linux nodes.
    let (name, part) = (format!("win-{at}"), at + 8);
    let block = format!("10.244.{}.{}/26", part / 4, part % 4 * 64);
    let condition = |type_: &str, status: &str| {
        json!({"type": type_, "status": status, "reason": format!("KubeletHas{type_}"), "message": format!("kubelet says {type_} of this node"),
            "lastHeartbeatTime": "2026-01-01T00:05:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let image = |at: usize| json!({"names": [format!("registry.example.com/app-{at}@sha256:{at:064}")], "sizeBytes": 1_000_000});
    let manager = |at: usize| {
        json!({"manager": format!("manager-{at}"), "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:05:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": {"f:conditions": {}}}})
    };
    let resources = json!({"cpu": "8", "ephemeral-storage": "133703676Ki", "memory": "33553972Ki", "pods": "110"});
    let address = format!("10.1.{}.{}", at / 256, at % 256);
    let labels = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
        "kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348", "topology.kubernetes.io/zone": "rack-1",
        "node.cluster.x-k8s.io/pool": "windows", "node-role.kubernetes.io/worker": "",
    });
    let annotations = json!({
        "cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/cluster-namespace": "lab", "cluster.x-k8s.io/machine": name,
        "cluster.x-k8s.io/owner-kind": "MachineSet", "cluster.x-k8s.io/owner-name": "windows-x7k2p",
        "flannel.alpha.coreos.com/backend-data": format!("{{\"VNI\":4096,\"VtepMAC\":\"00:15:5d:00:{:02x}:{:02x}\"}}", at / 256, at % 256),
        "flannel.alpha.coreos.com/backend-type": "vxlan", "flannel.alpha.coreos.com/kube-subnet-manager": "true",
        "flannel.alpha.coreos.com/public-ip": address, "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    });
    let system = json!({
        "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://2.3.1", "kernelVersion": "10.0.20348.2700",
        "kubeProxyVersion": "v1.36.3", "kubeletVersion": "v1.36.3", "machineID": name, "operatingSystem": "windows",
        "osImage": "Windows Server 2022 Standard", "systemUUID": format!("4C4C4544-0042-3510-8052-{at:012}"),
    });
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(|type_| condition(type_, "False"));
    let status = json!({
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "allocatable": resources, "capacity": resources, "conditions": conditions, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": (0..20).map(image).collect::<Vec<_>>(), "nodeInfo": system,
    });
    let metadata = json!({
        "name": name, "uid": format!("9d0e2c74-5a35-4a1e-9c5b-{at:012}"), "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": labels, "annotations": annotations, "managedFields": (0..4).map(manager).collect::<Vec<_>>(),
    });
    let taints = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let spec = json!({"podCIDR": block, "podCIDRs": [block], "providerID": format!("capw://lab/{name}"), "taints": taints});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status})
}

/// Returns the pod of a DaemonSet on that node, as its kubelet writes it.
pub fn pod(part: &str, at: usize) -> Value {
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mount = |name: &str| json!({"name": name, "mountPath": format!("C:\\capw\\{name}")});
    let volumes = ["settings", "run", "token"];
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": part, "uid": "d", "controller": true, "blockOwnerDeletion": true});
    let labels = json!({"app.kubernetes.io/managed-by": "capw", "app.kubernetes.io/name": part, "app.kubernetes.io/part-of": "capw",
        "controller-revision-hash": "7c8f6d9b5", "pod-template-generation": "1"});
    let metadata = json!({
        "name": format!("{part}-{at:05}"), "namespace": "capw-windows", "generateName": format!("{part}-"), "uid": format!("1f6f7f0a-{part}-{at:012}"),
        "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels, "ownerReferences": [owner],
        "annotations": {"infrastructure.cluster.x-k8s.io/settings": "0123456789abcdef"},
    });
    let variable = |at: usize| json!({"name": format!("VARIABLE_{at}"), "value": "10.96.0.1"});
    let container = json!({"name": part, "image": "registry.example.com/capw:v0", "args": [part], "volumeMounts": volumes.map(mount),
        "env": (0..6).map(variable).collect::<Vec<_>>()});
    let toleration = |at: usize| json!({"key": format!("node.kubernetes.io/trouble-{at}"), "operator": "Exists"});
    let spec = json!({
        "nodeName": format!("win-{at}"), "hostNetwork": true, "priorityClassName": "system-node-critical", "os": {"name": "windows"},
        "volumes": volumes.map(|name| json!({"name": name, "hostPath": {"path": format!("C:\\capw\\{name}"), "type": "DirectoryOrCreate"}})),
        "containers": [container], "tolerations": (0..8).map(toleration).collect::<Vec<_>>(),
    });
    let ran = json!({"name": part, "ready": true, "started": true, "restartCount": 0, "image": "registry.example.com/capw:v0",
        "imageID": format!("registry.example.com/capw@sha256:{at:064}"), "containerID": format!("containerd://{at:064}"),
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "lastState": {}, "volumeMounts": volumes.map(mount)});
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    let status = json!({
        "phase": "Running", "hostIP": "10.1.0.1", "podIP": "10.1.0.1", "qosClass": "Burstable", "startTime": "2026-01-01T00:00:00Z",
        "conditions": conditions, "containerStatuses": [ran],
    });
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
}
