//! The tables of the story *bad input*: what is changed in a valid object, and what the refusal has to say. It must not act.
//!
//! `<<N x>>` stands for N times x, joined by commas if x is longer than a letter, with its number for `#`.

/// A JSON merge patch of a valid object, and texts that the refusal has to hold: the field first.
pub type Case = (&'static str, &'static [&'static str]);

/// Kind, merge patch that makes the object, merge patch that is refused then, and what is said.
pub type Update = (&'static str, &'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip]
pub const MACHINE: &[Case] = &[
    (r#"{"spec": null}"#, &["spec: Required value"]),
    (r#"{"spec": "windows"}"#, &["spec", "must be of type object"]),
    (r#"{"metadata": {"name": "Win_1"}}"#, &["metadata.name", "lower case alphanumeric"]),
    (r#"{"spec": {"image": null}}"#, &["spec.image: Required value"]),
    (r#"{"spec": {"image": ""}}"#, &["spec.image", "at least 1 char"]),
    (r#"{"spec": {"image": "<<254 x>>"}}"#, &["spec.image", "may not be more than 253"]),
    (r#"{"spec": {"image": 2022}}"#, &["spec.image", "must be of type string"]),
    (r#"{"spec": {"image": "windows-server-2022 "}}"#, &["spec.image", "must not begin or end with a blank"]),
    (r#"{"spec": {"image": "a\nb"}}"#, &["spec.image", "line breaks"]),
    (r#"{"spec": {"cpu": 4}}"#, &["unknown field \"spec.", "cpu\""]),
    (r#"{"spec": {"cpus": 0}}"#, &["spec.cpus", "greater than or equal to 1"]),
    (r#"{"spec": {"cpus": 257}}"#, &["spec.cpus", "less than or equal to 256"]),
    (r#"{"spec": {"cpus": "four"}}"#, &["spec.cpus", "must be of type integer"]),
    (r#"{"spec": {"cpus": 1.5}}"#, &["spec.cpus", "must be of type integer"]),
    (r#"{"spec": {"memory": "8GB"}}"#, &["spec.memory", "whole number with Mi, Gi or Ti, e.g. 8Gi"]),
    (r#"{"spec": {"memory": "8"}}"#, &["spec.memory", "whole number with Mi, Gi or Ti, e.g. 8Gi"]),
    (r#"{"spec": {"memory": "1.5Gi"}}"#, &["spec.memory", "whole number with Mi, Gi or Ti, e.g. 8Gi"]),
    (r#"{"spec": {"memory": "-8Gi"}}"#, &["spec.memory", "whole number with Mi, Gi or Ti, e.g. 8Gi"]),
    (r#"{"spec": {"memory": "2047Mi"}}"#, &["spec.memory", "at least 2Gi"]),
    (r#"{"spec": {"memory": "49Ti"}}"#, &["spec.memory", "at most 48Ti"]),
    (r#"{"spec": {"memory": 8}}"#, &["spec.memory", "must be of type string"]),
    (r#"{"spec": {"systemDisk": "100GB"}}"#, &["spec.systemDisk", "whole number with Gi or Ti, e.g. 100Gi"]),
    (r#"{"spec": {"systemDisk": "31Gi"}}"#, &["spec.systemDisk", "at least 32Gi"]),
    (r#"{"spec": {"systemDisk": "65Ti"}}"#, &["spec.systemDisk", "at most 64Ti"]),
    (r#"{"spec": {"disks": [{"name": "data", "size": "1Gi"}, {"name": "data", "size": "2Gi"}]}}"#, &["spec.disks[1]", "Duplicate value", "data"]),
    (r#"{"spec": {"disks": [{"name": "Data", "size": "1Gi"}]}}"#, &["spec.disks[0].name", "lower case letters, digits and -"]),
    (r#"{"spec": {"disks": [{"name": "data"}]}}"#, &["spec.disks[0].size: Required value"]),
    (r#"{"spec": {"disks": [{"name": "data", "size": "512Mi"}]}}"#, &["spec.disks[0].size", "e.g. 100Gi"]),
    (r#"{"spec": {"disks": [{"name": "data", "size": "9999Ti"}]}}"#, &["spec.disks[0].size", "at most 64Ti"]),
    (r##"{"spec": {"disks": [<<17 {"name": "d#", "size": "1Gi"}>>]}}"##, &["spec.disks", "must have at most 16 items"]),
    (r#"{"spec": {"networks": [{}]}}"#, &["spec.networks[0].name: Required value"]),
    (r#"{"spec": {"networks": [{"name": ""}]}}"#, &["spec.networks[0].name", "at least 1 char"]),
    (r#"{"spec": {"networks": [{"name": " lan"}]}}"#, &["spec.networks[0].name", "as the hypervisor shows it"]),
    (r##"{"spec": {"networks": [<<9 {"name": "lan"}>>]}}"##, &["spec.networks", "must have at most 8 items"]),
    (r#"{"spec": {"firmware": {"type": "BIOS", "tpm": true}}}"#, &["spec", "firmware: Secure Boot and TPM need type UEFI"]),
    (r#"{"spec": {"firmware": {"type": "BIOS", "secureBoot": true}}}"#, &["spec", "firmware: Secure Boot and TPM need type UEFI"]),
    (r#"{"spec": {"firmware": {"type": "EFI"}}}"#, &["spec.firmware.type", "supported values: \"UEFI\", \"BIOS\""]),
    (r#"{"spec": {"hostName": "Computed"}}"#, &["spec.hostName", "supported values: \"Auto\", \"ObjectName\""]),
    (r#"{"spec": {"nestedVirtualization": "yes"}}"#, &["spec.nestedVirtualization", "must be of type boolean"]),
    (r#"{"spec": {"joinDeadlineSeconds": 9}}"#, &["spec.joinDeadlineSeconds", "greater than or equal to 10"]),
    (r#"{"spec": {"joinDeadlineSeconds": "45m"}}"#, &["spec.joinDeadlineSeconds", "must be of type integer"]),
    (r#"{"spec": {"hypervisorRef": {}}}"#, &["spec.hypervisorRef.name: Required value"]),
    (r#"{"spec": {"hypervisorRef": "lab"}}"#, &["spec.hypervisorRef", "must be of type object"]),
    (r#"{"spec": {"hypervisorRef": {"name": "Lab 1"}}}"#, &["spec.hypervisorRef.name", "lower case letters, digits, - and ."]),
    (r#"{"spec": {"providerID": "vsphere://4204c9c6-0000-5000-8000-000000000000"}}"#, &["spec.providerID", "leave it out"]),
    (r#"{"spec": {"providerID": "windows://lab/one"}}"#, &["spec.providerID", "windows://<hypervisor>/<uuid in lower case>"]),
    (r#"{"spec": {"providerID": "windows://lab/B0A3C9C6-0000-5000-8000-000000000000"}}"#, &["spec.providerID", "leave it out"]),
];

#[rustfmt::skip]
pub const BOOTSTRAP: &[Case] = &[
    (r#"{"spec": {"windowsRelease": 2022}}"#, &["spec.windowsRelease", "must be of type string"]),
    (r#"{"spec": {"windowsRelease": "2016"}}"#, &["spec.windowsRelease", "supported values: \"2019\", \"2022\", \"2025\""]),
    (r#"{"spec": {"channel": "Floppy"}}"#, &["spec.channel", "supported values: \"ConfigDrive\", \"GuestInfo\""]),
    (r#"{"spec": {"kubelet": {"nodeLabels": {"node-role.kubernetes.io/worker": ""}}}}"#, &["spec.kubelet.nodeLabels", "NodeRestriction", "Machine's template"]),
    (r#"{"spec": {"kubelet": {"nodeLabels": {"node-restriction.kubernetes.io/pci": "yes"}}}}"#, &["spec.kubelet.nodeLabels", "NodeRestriction"]),
    (r#"{"spec": {"kubelet": {"nodeLabels": {"team.k8s.io/a": "b"}}}}"#, &["spec.kubelet.nodeLabels", "NodeRestriction"]),
    (r#"{"spec": {"kubelet": {"nodeLabels": {"my pool": "a"}}}}"#, &["spec.kubelet.nodeLabels", "keys must be label keys"]),
    (r#"{"spec": {"kubelet": {"nodeLabels": {"<<64 x>>": "a"}}}}"#, &["spec.kubelet.nodeLabels", "at most 63 characters"]),
    (r#"{"spec": {"kubelet": {"nodeLabels": {"pool": "a b"}}}}"#, &["spec.kubelet.nodeLabels", "values must be label values"]),
    (r#"{"spec": {"kubelet": {"nodeLabels": {"pool": "<<64 x>>"}}}}"#, &["spec.kubelet.nodeLabels", "may not be more than 63"]),
    (r#"{"spec": {"kubelet": {"nodeLabels": {"gpu": true}}}}"#, &["spec.kubelet.nodeLabels.gpu", "must be of type string"]),
    (r##"{"spec": {"kubelet": {"nodeLabels": {<<65 "a#": "b">>}}}}"##, &["spec.kubelet.nodeLabels", "must have at most 64"]),
    (r#"{"spec": {"kubelet": {"taints": [{"key": "os", "effect": "NoRun"}]}}}"#, &["spec.kubelet.taints[0].effect", "supported values: \"NoSchedule\""]),
    (r#"{"spec": {"kubelet": {"taints": [{"key": "os"}]}}}"#, &["spec.kubelet.taints[0].effect: Required value"]),
    (r#"{"spec": {"kubelet": {"taints": [{"effect": "NoSchedule"}]}}}"#, &["spec.kubelet.taints[0].key: Required value"]),
    (r#"{"spec": {"kubelet": {"taints": ["os=windows:NoSchedule"]}}}"#, &["spec.kubelet.taints[0]", "must be of type object"]),
    (r#"{"spec": {"kubelet": {"taints": [{"key": "my os", "effect": "NoSchedule"}]}}}"#, &["spec.kubelet.taints[0].key", "qualified name"]),
    (r#"{"spec": {"kubelet": {"taints": [{"key": "os", "value": "win:dows", "effect": "NoSchedule"}]}}}"#, &["spec.kubelet.taints[0].value", "letters, digits"]),
    (r#"{"spec": {"kubelet": {"taints": [{"key": "os", "value": "<<64 x>>", "effect": "NoSchedule"}]}}}"#, &["spec.kubelet.taints[0].value", "may not be more than 63"]),
    (r#"{"spec": {"kubelet": {"taints": [{"key": "os", "effect": "NoSchedule"}, {"key": "os", "value": "b", "effect": "NoSchedule"}]}}}"#, &["spec.kubelet.taints[1]", "Duplicate value"]),
    (r#"{"spec": {"kubelet": {"maxPods": 0}}}"#, &["spec.kubelet.maxPods", "greater than or equal to 1"]),
    (r#"{"spec": {"kubelet": {"maxPods": 251}}}"#, &["spec.kubelet.maxPods", "less than or equal to 250"]),
    (r#"{"spec": {"kubelet": {"systemReserved": {"cpu": "0.5"}}}}"#, &["spec.kubelet.systemReserved.cpu", "e.g. 500m"]),
    (r#"{"spec": {"kubelet": {"kubeReserved": {"memory": "1GB"}}}}"#, &["spec.kubelet.kubeReserved.memory", "e.g. 512Mi"]),
    (r#"{"spec": {"kubelet": {"kubeReserved": {"disk": "1Gi"}}}}"#, &["unknown field", "kubelet.kubeReserved.disk"]),
    (r#"{"spec": {"kubelet": {"priorityClass": "REALTIME_PRIORITY_CLASS"}}}"#, &["spec.kubelet.priorityClass", "\"ABOVE_NORMAL_PRIORITY_CLASS\""]),
    (r#"{"spec": {"kubelet": {"clusterDNS": ["dns.local"]}}}"#, &["spec.kubelet.clusterDNS", "must be IP addresses, e.g. 10.96.0.10"]),
    (r#"{"spec": {"kubelet": {"clusterDNS": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]}}}"#, &["spec.kubelet.clusterDNS", "must have at most 3 items"]),
    (r#"{"spec": {"containerd": {"line": "1.6"}}}"#, &["spec.containerd.line", "supported values: \"1.7\", \"2\""]),
    (r#"{"spec": {"containerd": {"line": 2}}}"#, &["spec.containerd.line", "must be of type string"]),
    (r#"{"spec": {"containerd": {"sandboxImage": "https://images.test/pause"}}}"#, &["spec.containerd.sandboxImage", "without scheme"]),
    (r#"{"spec": {"containerd": {"sandboxImage": "pause\" #"}}}"#, &["spec.containerd.sandboxImage", "e.g. registry.k8s.io/pause"]),
    (r#"{"spec": {"join": {"tokenTTLSeconds": 59}}}"#, &["spec.join.tokenTTLSeconds", "greater than or equal to 60"]),
    (r#"{"spec": {"join": {"tokenTTLSeconds": 10000}}}"#, &["spec.join", "tokenMaxAgeSeconds (default 7200) must not be less than tokenTTLSeconds"]),
    (r#"{"spec": {"join": {"tokenMaxAgeSeconds": 604801}}}"#, &["spec.join.tokenMaxAgeSeconds", "less than or equal to 604800"]),
    (r#"{"spec": {"files": [{"path": "C:\\k\\a"}]}}"#, &["spec.files[0].content: Required value"]),
    (r#"{"spec": {"files": [{"path": "k\\a.txt", "content": ""}]}}"#, &["spec.files[0].path", "absolute Windows path"]),
    (r#"{"spec": {"files": [{"path": "/etc/hosts", "content": ""}]}}"#, &["spec.files[0].path", "e.g. C:\\k\\audit.json"]),
    (r#"{"spec": {"files": [{"path": "C:\\k\\..\\a", "content": ""}]}}"#, &["spec.files[0].path", "without .."]),
    (r#"{"spec": {"files": [{"path": "C:\\k\\", "content": ""}]}}"#, &["spec.files[0].path", "path of a file"]),
    (r#"{"spec": {"files": [{"path": "C:\\k\\a:b", "content": ""}]}}"#, &["spec.files[0].path", "absolute Windows path"]),
    (r#"{"spec": {"files": [{"path": "C:\\k\\com1.txt", "content": ""}]}}"#, &["spec.files[0].path", "devices to Windows"]),
    (r#"{"spec": {"files": [{"path": "C:\\k\\a", "content": ""}, {"path": "C:\\k\\a", "content": ""}]}}"#, &["spec.files[1]", "Duplicate value"]),
    (r#"{"spec": {"files": [{"path": "C:\\k\\a", "content": ""}, {"path": "c:\\K\\A", "content": ""}]}}"#, &["spec.files", "upper and lower case"]),
    (r#"{"spec": {"files": [{"path": "C:\\k\\a", "content": "<<1048577 x>>"}]}}"#, &["spec.files[0].content", "may not be more than 1048576"]),
    (r##"{"spec": {"files": [<<65 {"path": "C:\\k\\#", "content": ""}>>]}}"##, &["spec.files", "must have at most 64 items"]),
    (r##"{"spec": {"files": [<<4 {"path": "C:\\k\\#", "content": "<<900000 x>>"}>>]}}"##, &["limit is 3145728"]),
];

#[rustfmt::skip]
pub const CLUSTER: &[Case] = &[
    (r#"{"spec": {"controlPlaneEndpoint": {}}}"#, &["spec.controlPlaneEndpoint.host: Required value", "spec.controlPlaneEndpoint.port: Required value"]),
    (r#"{"spec": {"controlPlaneEndpoint": {"host": "https://a.test", "port": 6443}}}"#, &["spec.controlPlaneEndpoint.host", "without scheme, port and path"]),
    (r#"{"spec": {"controlPlaneEndpoint": {"host": "a.test:6443", "port": 6443}}}"#, &["spec.controlPlaneEndpoint.host", "without scheme, port and path"]),
    (r#"{"spec": {"controlPlaneEndpoint": {"host": "10.0.0.256", "port": 6443}}}"#, &["spec.controlPlaneEndpoint.host", "host name or an IP address"]),
    (r#"{"spec": {"controlPlaneEndpoint": {"host": "a.test", "port": 65536}}}"#, &["spec.controlPlaneEndpoint.port", "less than or equal to 65535"]),
    (r#"{"spec": {"controlPlaneEndpoint": "a.test:6443"}}"#, &["spec.controlPlaneEndpoint", "must be of type object"]),
    (r#"{"spec": {"hypervisors": ["lab"]}}"#, &["spec.hypervisors[0]", "must be of type object"]),
    (r#"{"spec": {"hypervisors": [{"name": "lab"}, {"name": "lab"}]}}"#, &["spec.hypervisors[1]", "Duplicate value"]),
    (r#"{"spec": {"hypervisors": [{"name": "Lab"}]}}"#, &["spec.hypervisors[0].name", "lower case letters"]),
    (r##"{"spec": {"hypervisors": [<<101 {"name": "lab-#"}>>]}}"##, &["spec.hypervisors", "must have at most 100 items"]),
];

#[rustfmt::skip]
pub const CONTROL_PLANE: &[Case] = &[
    (r#"{"spec": {"controlPlaneEndpoint": {"host": "", "port": 6443}}}"#, &["spec.controlPlaneEndpoint.host", "at least 1 char"]),
    (r#"{"spec": {"controlPlaneEndpoint": {"host": "a.test/api", "port": 6443}}}"#, &["spec.controlPlaneEndpoint.host", "without scheme, port and path"]),
    (r#"{"spec": {"controlPlaneEndpoint": {"host": "a.test", "port": 0}}}"#, &["spec.controlPlaneEndpoint.port", "greater than or equal to 1"]),
    (r#"{"spec": {"kubeconfigSecretRef": {}}}"#, &["spec.kubeconfigSecretRef.name: Required value"]),
    (r#"{"spec": {"kubeconfigSecretRef": {"name": "My_Secret"}}}"#, &["spec.kubeconfigSecretRef.name", "name of a Secret"]),
    (r#"{"spec": {"kubeconfigSecretRef": {"name": "a", "key": "kube/config"}}}"#, &["spec.kubeconfigSecretRef.key", "e.g. value"]),
    (r#"{"spec": {"version": "1.36.3"}}"#, &["spec.version", "e.g. v1.36.3"]),
    (r#"{"spec": {"version": "v1.36"}}"#, &["spec.version", "all three numbers"]),
    (r#"{"spec": {"kubeconfig": "apiVersion: v1"}}"#, &["unknown field \"spec.", "kubeconfig\""]),
];

#[rustfmt::skip]
pub const HYPERVISOR: &[Case] = &[
    (r#"{"spec": null}"#, &["spec: Required value"]),
    (r#"{"spec": {"simulated": null}}"#, &["spec", "name exactly one driver, e.g. spec.simulated: {}"]),
    (r#"{"spec": {"vmware": {}}}"#, &["unknown field \"spec.vmware\""]),
    (r#"{"metadata": {"name": "<<64 x>>"}}"#, &["metadata.name: must have at most 63 characters"]),
    (r#"{"spec": {"simulated": {"datacenter": "../../etc"}}}"#, &["spec.simulated.datacenter", "e.g. munich-1"]),
    (r#"{"spec": {"simulated": {"datacenter": ""}}}"#, &["spec.simulated.datacenter", "at least 1 char"]),
    (r#"{"spec": {"simulated": {"images": [""]}}}"#, &["spec.simulated.images[0]", "at least 1 char"]),
    (r#"{"spec": {"simulated": {"images": ["a", "a"]}}}"#, &["spec.simulated.images[1]", "Duplicate value"]),
    (r#"{"spec": {"simulated": {"capacity": {}}}}"#, &["spec.simulated.capacity.cpus: Required value", "spec.simulated.capacity.memory: Required value"]),
    (r#"{"spec": {"simulated": {"capacity": {"cpus": 0, "memory": "1Gi"}}}}"#, &["spec.simulated.capacity.cpus", "greater than or equal to 1"]),
    (r#"{"spec": {"simulated": {"capacity": {"cpus": 8, "memory": "lots"}}}}"#, &["spec.simulated.capacity.memory", "e.g. 256Gi"]),
    (r#"{"spec": {"simulated": {"delays": {"bootMilliseconds": -1}}}}"#, &["spec.simulated.delays.bootMilliseconds", "greater than or equal to 0"]),
    (r#"{"spec": {"simulated": {"delays": {"joinMilliseconds": 3600001}}}}"#, &["spec.simulated.delays.joinMilliseconds", "less than or equal to 3600000"]),
    (r#"{"spec": {"simulated": {"unreachable": "no"}}}"#, &["spec.simulated.unreachable", "must be of type boolean"]),
    (r#"{"spec": {"simulated": {"faults": [{"names": "", "fault": "NoJoin"}]}}}"#, &["spec.simulated.faults[0].names", "at least 1 char"]),
    (r#"{"spec": {"simulated": {"faults": [{"names": "*", "fault": "Explode"}]}}}"#, &["spec.simulated.faults[0].fault", "\"NoBoot\", \"NoJoin\""]),
    (r#"{"spec": {"simulated": {"faults": [{"names": "*", "fault": "NoJoin", "count": 0}]}}}"#, &["spec.simulated.faults[0].count", "greater than or equal to 1"]),
];

const MADE: &str = r#"{"spec": {"providerID": "windows://lab/b0a3c9c6-0000-5000-8000-000000000000", "hypervisorRef": {"name": "lab"}, "disks": [{"name": "a", "size": "1Gi"}]}}"#;
const FIXED: &str = "cannot change once the VM exists: make a new WindowsMachineTemplate";

#[rustfmt::skip]
pub const UPDATES: &[Update] = &[
    ("WindowsMachine", MADE, r#"{"spec": {"providerID": "windows://lab/b0a3c9c6-0000-5000-8000-000000000001"}}"#, &["spec", "providerID: cannot change once it is set"]),
    ("WindowsMachine", MADE, r#"{"spec": {"providerID": null}}"#, &["spec", "providerID: cannot change once it is set"]),
    ("WindowsMachine", MADE, r#"{"spec": {"image": "other"}}"#, &["spec", "image", FIXED]),
    ("WindowsMachine", MADE, r#"{"spec": {"cpus": 8}}"#, &["spec", "cpus", FIXED]),
    ("WindowsMachine", MADE, r#"{"spec": {"memory": "16Gi"}}"#, &["spec", "memory", FIXED]),
    ("WindowsMachine", MADE, r#"{"spec": {"systemDisk": "100Gi"}}"#, &["spec", "systemDisk", FIXED]),
    ("WindowsMachine", MADE, r#"{"spec": {"disks": [{"name": "a", "size": "2Gi"}]}}"#, &["spec", "disks", FIXED]),
    ("WindowsMachine", MADE, r#"{"spec": {"networks": [{"name": "lan"}]}}"#, &["spec", "networks", FIXED]),
    ("WindowsMachine", MADE, r#"{"spec": {"firmware": {"tpm": true}}}"#, &["spec", "firmware", FIXED]),
    ("WindowsMachine", MADE, r#"{"spec": {"hypervisorRef": {"name": "other"}}}"#, &["spec", "hypervisorRef", FIXED]),
    ("WindowsMachine", MADE, r#"{"spec": {"hostName": "ObjectName"}}"#, &["spec", "hostName", FIXED]),
    ("WindowsMachine", MADE, r#"{"spec": {"nestedVirtualization": true}}"#, &["spec", "nestedVirtualization", FIXED]),
    ("WindowsHypervisor", "{}", r#"{"spec": {"simulated": {"datacenter": "other"}}}"#, &["spec.simulated", "datacenter: cannot change"]),
    ("WindowsHypervisor", r#"{"spec": {"simulated": {"datacenter": "one"}}}"#, r#"{"spec": {"simulated": {"datacenter": null}}}"#, &["spec.simulated", "datacenter: cannot change"]),
    ("WindowsHypervisor", "{}", r#"{"spec": {"simulated": null}}"#, &["spec", "name exactly one driver"]),
];
