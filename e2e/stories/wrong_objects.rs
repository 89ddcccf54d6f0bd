//! The tables of the second half of the story *bad input*: objects that the schema accepts and that are wrong, and the conditions that they must
//! have. This file only holds data.

use crate::world::Kind;

/// The expected report of an object: a condition that is `False`.
pub struct Told {
    pub kind: Kind,
    pub condition: &'static str,
    pub reason: &'static str,
    /// The parts that the message must contain.
    pub says: &'static [&'static str],
}

/// A machine. The texts are JSON merge patches for the Machine, and for the specs of its WindowsMachine and WindowsBootstrapConfig.
pub struct Machine {
    pub name: &'static str,
    pub machine: &'static str,
    pub windows_machine: &'static str,
    pub bootstrap: &'static str,
    pub told: Told,
}

/// A control plane: its spec, and merge patches for the cluster and the user in its kubeconfig, which is under `key` in its Secret.
pub struct ControlPlane {
    pub name: &'static str,
    pub spec: &'static str,
    pub cluster: &'static str,
    pub user: &'static str,
    pub key: &'static str,
    pub told: Told,
}

const fn machine(name: &'static str, machine: &'static str, spec: &'static str, reason: &'static str, says: &'static [&'static str]) -> Machine {
    Machine { name, machine, windows_machine: spec, bootstrap: "{}", told: Told { kind: Kind::WINDOWS_MACHINE, condition: "Ready", reason, says } }
}

const fn bootstrap(name: &'static str, machine: &'static str, spec: &'static str, reason: &'static str, says: &'static [&'static str]) -> Machine {
    let told = Told { kind: Kind::WINDOWS_BOOTSTRAP_CONFIG, condition: "Ready", reason, says };
    Machine { name, machine, windows_machine: "{}", bootstrap: spec, told }
}

#[rustfmt::skip]
pub const MACHINES: &[Machine] = &[
    machine("no-hypervisor", "{}", r#"{"hypervisorRef": null}"#, "HypervisorMissing", &["spec.hypervisorRef: name one", "lab, tiny"]),
    machine("far-hypervisor", "{}", r#"{"hypervisorRef": {"name": "nowhere"}}"#, "HypervisorMissing", &["spec.hypervisorRef.name", "\"nowhere\"", "lab, tiny"]),
    machine("far-domain", r#"{"spec": {"failureDomain": "mars"}}"#, "{}", "HypervisorMissing", &["spec.failureDomain", "\"mars\"", "lab, tiny"]),
    machine("no-such-image", "{}", r#"{"image": "../../etc/passwd"}"#, "ImageMissing", &["../../etc/passwd", "spec.image"]),
    machine("no-room", "{}", r#"{"hypervisorRef": {"name": "tiny"}, "cpus": 64}"#, "NoCapacity", &["WindowsHypervisor tiny"]),
    machine("1234567", "{}", r#"{"hostName": "ObjectName"}"#, "InvalidSpec", &["1234567", "not digits only"]),
    machine("never-there", "{}", r#"{"providerID": "windows://lab/b0a3c9c6-0000-5000-8000-000000000000"}"#, "VirtualMachineRemoved", &["b0a3c9c6-0000-5000-8000-000000000000", "delete the Machine"]),
    machine("no-secret", r#"{"spec": {"bootstrap": {"configRef": null, "dataSecretName": "not-there"}}}"#, "{}", "BootstrapSecretMissing", &["not-there", "spec.bootstrap.dataSecretName"]),
    machine("empty-secret", r#"{"spec": {"bootstrap": {"configRef": null, "dataSecretName": "no-value"}}}"#, "{}", "BootstrapSecretMissing", &["no-value", "\"value\""]),
    machine("for-masters", r#"{"metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}}}"#, "{}", "ControlPlaneMachineRefused", &["workers only"]),
    bootstrap("for-masters-too", r#"{"metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}}}"#, "{}", "ControlPlaneMachineRefused", &["workers only"]),
    bootstrap("old-version", r#"{"spec": {"version": "v1.20.0"}}"#, "{}", "Incompatible", &["spec.version of the Machine", "v1.20.0", "kubeadm v1beta4", "Kubernetes v1.36.3 instead"]),
    bootstrap("new-version", r#"{"spec": {"version": "v1.99.0"}}"#, "{}", "Incompatible", &["spec.version of the Machine", "v1.99.0", "update CAPW"]),
    bootstrap("no-version", r#"{"spec": {"version": null}}"#, "{}", "InvalidSpec", &["spec.version", "e.g. v1.36.3"]),
    bootstrap("old-containerd", "{}", r#"{"windowsRelease": "2025", "containerd": {"line": "1.7"}}"#, "Incompatible", &["spec.containerd.line", "2.0.4", "https://", "Nearest set that works: containerd 2.3.7"]),
    bootstrap("our-file", "{}", r#"{"containerd": {"registries": [{"host": "docker.io", "mirrors": [{"url": "https://m.example.com"}]}]}, "files": [{"path": "C:\\etc\\containerd\\certs.d\\docker.io\\hosts.toml", "content": ""}]}"#, "InvalidSpec", &["spec.files[0].path", "writes this file"]),
    bootstrap("greedy", "{}", r#"{"kubelet": {"systemReserved": {"memory": "100Gi"}}}"#, "InvalidSpec", &["spec.memory of the machine", "give the machine more memory"]),
    bootstrap("greedy-too", "{}", r#"{"kubelet": {"kubeReserved": {"cpu": "4"}}}"#, "InvalidSpec", &["spec.cpus of the machine", "kubeReserved.cpu"]),
    bootstrap("payload", "{}", "{}", "PayloadTooLarge", &["spec.channel", "the limit is", "Kubernetes Secret, 1 MiB"]),
    bootstrap("far-secret", "{}", r#"{"files": [{"path": "C:\\k\\a", "contentFrom": {"secretKeyRef": {"name": "nowhere", "key": "a"}}}]}"#, "SecretMissing", &["spec.files[0].contentFrom.secretKeyRef", "Secret wrong/nowhere does not exist"]),
    bootstrap("far-key", "{}", r#"{"files": [{"path": "C:\\k\\a", "contentFrom": {"secretKeyRef": {"name": "no-value", "key": "none"}}}]}"#, "SecretMissing", &["spec.files[0].contentFrom.secretKeyRef", "Secret wrong/no-value has no key \"none\""]),
    bootstrap("not-base64", "{}", r#"{"files": [{"path": "C:\\k\\a", "content": "%%", "encoding": "base64"}]}"#, "InvalidSpec", &["spec.files[0].content", "not base64"]),
    bootstrap("secret-taken", "{}", "{}", "SecretConflict", &["Secret wrong/secret-taken", "remove it, or rename the Machine"]),
];

const fn control_plane(
    name: &'static str,
    cluster: &'static str,
    user: &'static str,
    reason: &'static str,
    says: &'static [&'static str],
) -> ControlPlane {
    let told = Told { kind: Kind::EXTERNAL_CONTROL_PLANE, condition: "Available", reason, says };
    ControlPlane { name, spec: "{}", cluster, user, key: "value", told }
}

#[rustfmt::skip]
pub const CONTROL_PLANES: &[ControlPlane] = &[
    ControlPlane { spec: r#"{"kubeconfigSecretRef": {"name": "not-there"}}"#, ..control_plane("config-missing", "{}", "{}", "KubeconfigMissing", &["not-there"]) },
    ControlPlane { key: "config", ..control_plane("config-key", "{}", "{}", "KubeconfigMissing", &["config-key-external-kubeconfig", "value"]) },
    control_plane("config-exec", "{}", r#"{"token": null, "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": ["executed"], "interactiveMode": "Never"}}"#, "KubeconfigInvalid", &["exec is not accepted", "token"]),
    control_plane("config-path", r#"{"certificate-authority-data": null, "certificate-authority": "/etc/passwd"}"#, "{}", "KubeconfigInvalid", &["certificate-authority is not accepted", "--flatten"]),
    control_plane("config-file", "{}", r#"{"token": null, "tokenFile": "/etc/passwd"}"#, "KubeconfigInvalid", &["tokenFile is not accepted"]),
    control_plane("config-blind", r#"{"certificate-authority-data": null, "insecure-skip-tls-verify": true}"#, "{}", "KubeconfigInvalid", &["insecure-skip-tls-verify is not accepted", "certificate-authority-data"]),
    control_plane("config-http", r#"{"server": "http://127.0.0.1:8080"}"#, "{}", "KubeconfigInvalid", &["https://"]),
    control_plane("config-token", "{}", r#"{"token": "wrong"}"#, "CredentialsRejected", &["does not accept the credentials", "renew them"]),
    control_plane("taken", "{}", "{}", "SecretConflict", &["Secret wrong/taken-kubeconfig", "remove it"]),
];

/// The API version, kind and spec of each object without an owner.
pub const ORPHANS: &[(&str, &str, &str)] = &[
    (Kind::WINDOWS_MACHINE.api_version, "WindowsMachine", r#"{"image": "windows-server-2022"}"#),
    (Kind::WINDOWS_BOOTSTRAP_CONFIG.api_version, "WindowsBootstrapConfig", "{}"),
    (Kind::WINDOWS_CLUSTER.api_version, "WindowsCluster", "{}"),
    (Kind::EXTERNAL_CONTROL_PLANE.api_version, "ExternalControlPlane", "{}"),
];
