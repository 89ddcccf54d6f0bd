//! A program on Windows nodes: its account, its settings, and the DaemonSet that runs it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::namespace::NAMESPACE;
use super::parameters::{Parameters, with_pull_secrets};
use crate::components::plan::{digest, labels};

/// Annotation on pods: the digest of the settings that they started with. A change of the settings restarts the pods, one node at a time.
const SETTINGS: &str = "infrastructure.cluster.x-k8s.io/windows-side-settings";

/// The folder of a HostProcess container's volumes; containerd's shim replaces the placeholder. On Windows Server 2019 the volumes are only there.
/// <https://kubernetes.io/docs/tasks/configure-pod-container/create-hostprocess-pod/#volume-mounts>
const VOLUMES: &str = "%CONTAINER_SANDBOX_MOUNT_POINT%";

/// A program that `capw-node.exe` starts.
pub struct Program {
    /// The name of the command, the account, the ConfigMap and the DaemonSet.
    pub name: &'static str,
    /// The arguments of `capw-node.exe` for this network.
    pub arguments: &'static [&'static str],
    /// The files of the ConfigMap.
    pub settings: BTreeMap<&'static str, Value>,
    /// The readiness probe, if a running process is not enough.
    pub readiness: Option<Value>,
}

impl Program {
    fn metadata(&self) -> Value {
        json!({"name": self.name, "namespace": NAMESPACE, "labels": labels(self.name)})
    }

    pub fn account(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata()})
    }

    pub fn config_map(&self) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": self.metadata(), "data": self.files()})
    }

    fn files(&self) -> Map<String, Value> {
        self.settings.iter().map(|(name, value)| ((*name).to_owned(), json!(format!("{value:#}\n")))).collect()
    }

    /// The digest of the files and of the Secrets' names. Other writers may add Secrets, so a removed name would otherwise go unnoticed.
    fn digest(&self, parameters: &Parameters) -> String {
        let files = Value::Object(self.files()).to_string();
        digest(&(files + &parameters.pull_secrets.join(",")))
    }

    /// Runs one pod on each Windows node, whatever its taints: without this pod, no other pod there has a network.
    pub fn daemon_set(&self, parameters: &Parameters) -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": self.metadata(),
            "spec": {
                "selector": {"matchLabels": {"app.kubernetes.io/name": self.name}},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                "template": {
                    "metadata": {"labels": labels(self.name), "annotations": {SETTINGS: self.digest(parameters)}},
                    "spec": with_pull_secrets(self.pod(parameters), &parameters.pull_secrets),
                },
            },
        })
    }

    fn pod(&self, parameters: &Parameters) -> Value {
        json!({
            "os": {"name": "windows"},
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "serviceAccountName": self.name,
            // The token that is mounted below has only this purpose.
            "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": r"NT AUTHORITY\SYSTEM"}},
            "containers": [self.container(parameters)],
            "volumes": [
                {"name": "settings", "configMap": {"name": self.name}},
                {"name": "access", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ]}},
            ],
        })
    }

    /// Mount paths have no drive letters. The image's entrypoint is `capw-node.exe`.
    fn container(&self, parameters: &Parameters) -> Value {
        let name = self.name;
        let of_pod = |variable: &str, field: &str| json!({"name": variable, "valueFrom": {"fieldRef": {"fieldPath": field}}});
        let mut arguments =
            vec![name.to_owned(), format!(r"--settings={VOLUMES}\etc\capw\{name}"), format!(r"--access={VOLUMES}\var\run\secrets\capw\{name}")];
        arguments.extend(self.arguments.iter().map(ToString::to_string));
        let mut container = json!({
            "name": name,
            "image": parameters.image,
            "imagePullPolicy": "IfNotPresent",
            "args": arguments,
            "env": [
                of_pod("NODE_NAME", "spec.nodeName"),
                of_pod("NODE_ADDRESS", "status.hostIP"),
                {"name": "API_SERVER", "value": parameters.api_server},
            ],
            // No limits: if the network program of a node is stopped, the node loses all its pods.
            "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [
                {"name": "settings", "mountPath": format!("/etc/capw/{name}"), "readOnly": true},
                {"name": "access", "mountPath": format!("/var/run/secrets/capw/{name}"), "readOnly": true},
            ],
        });
        if let (Some(probe), Some(fields)) = (&self.readiness, container.as_object_mut()) {
            fields.insert("readinessProbe".to_owned(), probe.clone());
        }
        container
    }
}
