//! Tests of the objects for Windows nodes, and of clusters for which CAPW renders none.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{KNOWN, changed, object, recording};
use crate::api::condition::Reason;
use crate::components::{NAMESPACE, ObjectRef, Parameters, Refusal, brought_by_another, is_warning, read, role, windows_side};

fn parameters() -> Parameters {
    Parameters { image: "registry.example.com/capw:v0.2.0".into(), api_server: "https://10.0.0.10:6443".into(), pull_secrets: Vec::new() }
}

fn rendered(objects: &[Value]) -> Result<Vec<Value>, Refusal> {
    windows_side(&read(objects), &parameters())
}

/// A file of a rendered ConfigMap.
fn file(rendered: &mut [Value], config_map: &str, name: &str) -> Value {
    serde_json::from_str(object(rendered, &format!("ConfigMap {config_map}")).unwrap()["data"][name].as_str().unwrap()).unwrap()
}

/// The digest that the pods of a DaemonSet carry.
fn digest(rendered: &mut [Value], set: &str) -> String {
    object(rendered, &format!("DaemonSet {set}")).unwrap()["spec"]["template"]["metadata"]["annotations"].to_string()
}

/// Whether the object's kind has every field, with the right type: unknown fields are lost in a round trip through Kubernetes' own types.
fn has_only_known_fields(object: &Value) -> bool {
    fn same<T: DeserializeOwned + Serialize>(object: &Value) -> bool {
        serde_json::from_value::<T>(object.clone()).is_ok_and(|typed| serde_json::to_value(typed).unwrap() == *object)
    }
    match (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap()) {
        ("v1", "Namespace") => same::<Namespace>(object),
        ("v1", "ServiceAccount") => same::<ServiceAccount>(object),
        ("v1", "ConfigMap") => same::<ConfigMap>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => same::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => same::<ClusterRoleBinding>(object),
        ("apps/v1", "DaemonSet") => same::<DaemonSet>(object),
        ("node.k8s.io/v1", "RuntimeClass") => same::<RuntimeClass>(object),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => same::<ValidatingAdmissionPolicy>(object),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => same::<ValidatingAdmissionPolicyBinding>(object),
        (version, kind) => panic!("{version} {kind}"),
    }
}

/// The images anywhere in an object. A site without the Internet mirrors only the images that CAPW documents.
pub fn images(object: &Value) -> Vec<&str> {
    let own = object.get("image").and_then(Value::as_str);
    let parts: Vec<&Value> = match object {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    own.into_iter().chain(parts.into_iter().flat_map(images)).collect()
}

/// The properties of every rendered object, for any cluster.
pub fn is_ours(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let labels = &metadata["labels"];
    let labelled = labels["app.kubernetes.io/managed-by"] == "capw"
        && labels["app.kubernetes.io/part-of"] == "capw"
        && labels["app.kubernetes.io/name"].as_str().is_some_and(|name| !name.is_empty());
    let placed = match object["kind"].as_str().unwrap() {
        "Namespace" => metadata["name"] == NAMESPACE,
        "ClusterRole" | "ClusterRoleBinding" | "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => {
            metadata["namespace"].is_null() && metadata["name"].as_str().unwrap().starts_with("capw-")
        }
        "RuntimeClass" => metadata["namespace"].is_null() && metadata["name"].as_str().unwrap().starts_with("windows-"),
        _ => metadata["namespace"] == NAMESPACE,
    };
    labelled && placed && crate::components::kind_of(object).is_some() && has_only_known_fields(object)
}

#[test]
fn the_objects_of_a_cluster_that_is_as_windows_needs_it() {
    let objects = rendered(&recording("flannel-vxlan-4096")).unwrap();
    let documents = objects.iter().map(|object| format!("---\n{}", serde_saphyr::to_string(object).unwrap()));
    insta::assert_snapshot!(documents.collect::<String>());
}

#[test]
fn with_host_gw_only_the_settings_differ() {
    let [vxlan, mut host_gw] = ["flannel-vxlan-4096", "flannel-host-gw"].map(|name| rendered(&recording(name)).unwrap());
    let files = [("flannel", "net-conf.json"), ("flannel", "cni.conflist"), ("kube-proxy", "config.json")];
    insta::assert_snapshot!(files.map(|(config_map, name)| format!("{name}: {:#}\n", file(&mut host_gw, config_map, name))).concat());
    let without_settings = |mut objects: Vec<Value>| {
        objects.retain(|object| object["kind"] != "ConfigMap");
        // The digests of the settings are ignored.
        objects.iter_mut().filter_map(|object| object.pointer_mut("/spec/template/metadata/annotations")).for_each(|digest| *digest = Value::Null);
        objects
    };
    assert_eq!(without_settings(host_gw), without_settings(vxlan));
}

/// Calico's operator installs the rest.
#[test]
fn the_objects_of_a_cluster_with_calico_are_those_of_kube_proxy() {
    let objects = rendered(&recording("calico-operator-windows")).unwrap();
    let documents = objects.iter().map(|object| format!("---\n{}", serde_saphyr::to_string(object).unwrap()));
    insta::assert_snapshot!(documents.collect::<String>());
    let side = read(&recording("calico-operator-windows"));
    let set = brought_by_another(&side).unwrap();
    assert!(recording("calico-operator-windows").iter().any(|object| ObjectRef::of(object) == set), "{set}");
    assert_eq!(brought_by_another(&read(&recording("flannel-vxlan-4096"))), None);
}

#[test]
fn where_another_runs_kube_proxy_in_calicos_network_nothing_is_left_to_bring() {
    let mut objects = recording("calico-operator-windows");
    let image = "sigwindowstools/kube-proxy:v1.36.3-calico-hostprocess";
    objects.push(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "kube-proxy-windows", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "kube-proxy", "image": image}]}}}}));
    let told = rendered(&objects).unwrap_err().to_string();
    assert!(told.contains("DaemonSet kube-system/kube-proxy-windows runs kube-proxy there already"), "{told}");
}

#[test]
fn kube_proxy_is_told_the_first_of_calicos_networks_with_ipv4() {
    let of_pool = |change: &Value| rendered(&changed("calico-operator-bgp-windows", "IPPool more", change));
    let pool = |spec: Value| json!({"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": {"name": "more"}, "spec": spec});
    for spec in [json!({"cidr": "10.200.0.0/16"}), json!({"cidr": "fd00::/56"})] {
        let mut objects = of_pool(&pool(spec.clone())).unwrap();
        assert_eq!(file(&mut objects, "kube-proxy", "config.json")["clusterCIDR"], "10.244.0.0/16", "{spec}");
    }
    let mut none = changed("calico-operator-bgp-windows", "IPPool default-ipv4-ippool", &json!({"spec": {"disabled": true}}));
    json_patch::merge(object(&mut none, "Installation default").unwrap(), &json!({"spec": {"calicoNetwork": {"ipPools": []}}}));
    assert_eq!(rendered(&none), Err(Refusal::PodNetworkUnknown("no pool of Calico with IPv4".into())));
}

/// Recordings for which objects are rendered, with the values that differ between their networks.
#[test]
fn recordings_are_rendered_with_their_networks() {
    let found: Vec<[String; 4]> = KNOWN
        .iter()
        .filter_map(|known| {
            let mut objects = rendered(&recording(known.name)).ok()?;
            assert!(objects.iter().all(is_ours), "{}", known.name);
            let images: Vec<&str> = objects.iter().flat_map(images).collect();
            assert!(!images.is_empty() && images.iter().all(|image| *image == parameters().image), "{}: {images:?}", known.name);
            let proxy = file(&mut objects, "kube-proxy", "config.json");
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            if known.kind == "calico" {
                return Some([known.name.to_owned(), text(&proxy["winkernel"]["networkName"]), text(&proxy["clusterCIDR"]), String::new()]);
            }
            let [net_conf, conflist] = ["net-conf.json", "cni.conflist"].map(|name| file(&mut objects, "flannel", name));
            assert_eq!(conflist["name"], proxy["winkernel"]["networkName"], "{}", known.name);
            assert_eq!(conflist["disableCheck"], true, "{}", known.name);
            assert_eq!(net_conf["Network"], proxy["clusterCIDR"], "{}", known.name);
            let services = &conflist["plugins"][0]["delegate"]["policies"][1]["value"]["Settings"]["DestinationPrefix"];
            Some([known.name.to_owned(), text(&conflist["name"]), text(&net_conf["Network"]), text(services)])
        })
        .collect();
    let kubeadm = |name: &str| [name, "flannel.4096", "10.244.0.0/16", "10.96.0.0/12"].map(str::to_owned);
    let bridge = |name: &str| [name, "cbr0", "10.244.0.0/16", "10.96.0.0/12"].map(str::to_owned);
    let calico = |name: &str| [name, "Calico", "10.244.0.0/16", ""].map(str::to_owned);
    let expected = [
        calico("calico-operator-bgp-windows"),
        calico("calico-operator-windows"),
        bridge("flannel-host-gw"),
        kubeadm("flannel-nftables"),
        kubeadm("flannel-vxlan-4096"),
        kubeadm("kubeadm-iptables"),
        kubeadm("kubeadm-ipvs"),
        kubeadm("kubeadm-nftables"),
        ["rke2-flannel", "flannel.4096", "10.42.0.0/16", "10.43.0.0/16"].map(str::to_owned),
    ];
    assert_eq!(found, expected);
}

#[test]
fn where_nothing_is_rendered_the_reason_is_told() {
    let wrong = |reason: Reason| format!("{reason}: ");
    for (name, expected) in [
        ("flannel-manifest", wrong(Reason::VniBelow4096)),
        ("flannel-chart", wrong(Reason::VniBelow4096)),
        ("k3s", wrong(Reason::VniBelow4096)),
        ("flannel-changed-not-rolled", wrong(Reason::NotRolledOut)),
        ("flannel-direct-routing", wrong(Reason::DirectRouting)),
        ("flannel-gbp", wrong(Reason::GbpOn)),
        ("flannel-dual-stack", wrong(Reason::DualStack)),
        ("ipv6-only", wrong(Reason::Ipv6Only)),
        ("no-linux-nodes", wrong(Reason::NoLinuxNodes)),
        ("flannel-wireguard", "the network is flannel, and CAPW does not bring it to Windows nodes (Refuse).".into()),
        ("calico-operator-vxlan", wrong(Reason::WindowsDataplaneOff)),
        ("calico-operator-installed", wrong(Reason::StrictAffinityOff)),
        ("k0s", "the network is calico, and CAPW does not bring it to Windows nodes (Check).".into()),
        ("calico-manifest", "the network is calico, and CAPW does not bring it to Windows nodes (Refuse).".into()),
        ("antrea-encap", "the network is antrea, and CAPW does not bring it to Windows nodes (Check).".into()),
        ("cilium", "the network is cilium, and CAPW does not bring it to Windows nodes (Refuse).".into()),
        ("rke2-canal", "the network is canal, and CAPW does not bring it to Windows nodes (Refuse).".into()),
    ] {
        let told = rendered(&recording(name)).unwrap_err().to_string();
        assert!(told.starts_with(&expected), "{name}: {told}");
    }
    let told = rendered(&[]).unwrap_err().to_string();
    assert!(told.starts_with("the network is unknown"), "{told}");
}

#[test]
fn the_worst_that_is_wrong_is_told_with_the_remedy() {
    let told = rendered(&recording("flannel-manifest")).unwrap_err().to_string();
    for part in ["ConfigMap kube-flannel/kube-flannel-cfg, data[net-conf.json].Backend.VNI", "apply the patch", "(1 more: `capw components render`"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// The table of recordings states whether objects are rendered.
#[test]
fn all_other_recordings_have_something_in_the_way() {
    for known in &KNOWN {
        let usable = matches!(known.role, "Run" | "Ask") && known.reasons.iter().all(|reason| is_warning(*reason));
        assert_eq!(rendered(&recording(known.name)).is_ok(), usable, "{}", known.name);
    }
}

/// k3s contains Flannel: nodes show the VNI, and a flag or a default of k3s contains the pod network.
#[test]
fn without_a_config_map_nodes_tell_the_settings() {
    let node = |arguments: &str| {
        json!({"metadata": {"annotations": {"k3s.io/node-args": arguments,
            "flannel.alpha.coreos.com/backend-data": r#"{"VNI":4097,"VtepMAC":"46:7f:5c:1c:0b:01"}"#}}})
    };
    let k3s = |arguments: &str| {
        let mut objects = changed("k3s", "Node linux-1", &node(arguments));
        json_patch::merge(object(&mut objects, "Node linux-2").unwrap(), &node(r#"["agent", "--flannel-conf=/etc/flannel.json"]"#));
        objects
    };
    let cluster = k3s(r#"["server", "--flannel-conf=/etc/flannel.json"]"#);
    let mut objects = rendered(&cluster).unwrap();
    assert_eq!(
        file(&mut objects, "flannel", "net-conf.json"),
        json!({"Network": "10.42.0.0/16", "Backend": {"Type": "vxlan", "Name": "flannel.4097", "VNI": 4097, "Port": 4789}})
    );

    // The blocks of single nodes do not contain the blocks of the next nodes.
    let mut elsewhere = cluster.clone();
    for (node, block) in [("Node linux-1", "10.50.0.0/24"), ("Node linux-2", "10.50.1.0/24")] {
        json_patch::merge(object(&mut elsewhere, node).unwrap(), &json!({"spec": {"podCIDR": block, "podCIDRs": [block]}}));
    }
    assert_eq!(rendered(&elsewhere), Err(Refusal::PodNetworkUnknown("10.50.0.0/24 and 10.50.1.0/24".into())));
    elsewhere.retain(|object| object["metadata"]["name"] != "linux-2");
    assert_eq!(rendered(&elsewhere), Err(Refusal::PodNetworkUnknown("10.50.0.0/24".into())));

    let mut silent = cluster;
    for node in ["Node linux-1", "Node linux-2"] {
        let nothing = json!({"metadata": {"annotations": {"flannel.alpha.coreos.com/backend-data": "null"}}});
        json_patch::merge(object(&mut silent, node).unwrap(), &nothing);
    }
    assert_eq!(rendered(&silent), Err(Refusal::VniUnknown));
}

fn flannel_named(recording: &str, mut backend: Value, name: &str) -> Vec<Value> {
    json_patch::merge(&mut backend, &json!({"Name": name}));
    let net_conf = json!({"Network": "10.244.0.0/16", "EnableNFTables": false, "Backend": backend});
    changed(recording, "ConfigMap kube-flannel-cfg", &json!({"data": {"net-conf.json": net_conf.to_string()}}))
}

#[test]
fn the_network_has_the_name_that_flannel_gives_it() {
    for (recording, written, read) in [
        (
            "flannel-vxlan-4096",
            json!({"Type": "VXLAN", "VNI": 4096, "Port": 4789}),
            json!({"Type": "vxlan", "Name": "net0", "VNI": 4096, "Port": 4789}),
        ),
        ("flannel-host-gw", json!({"Type": "host-gw"}), json!({"Type": "host-gw", "Name": "net0"})),
    ] {
        let mut objects = rendered(&flannel_named(recording, written.clone(), "net0")).unwrap();
        assert_eq!(file(&mut objects, "flannel", "net-conf.json"), json!({"Network": "10.244.0.0/16", "Backend": read}));
        assert_eq!(file(&mut objects, "flannel", "cni.conflist")["name"], "net0");
        assert_eq!(file(&mut objects, "kube-proxy", "config.json")["winkernel"]["networkName"], "net0");
        for name in ["my network", "-a", "ä", "a/b"] {
            assert_eq!(rendered(&flannel_named(recording, written.clone(), name)), Err(Refusal::BadName(name.into())));
        }
    }
}

#[test]
fn every_service_network_is_reached_from_pods_and_ipv6_is_left_out() {
    let change = json!({"spec": {"cidrs": ["10.96.0.0/12", "10.120.0.0/16", "fd00::/108"]}});
    let services = ["10.96.0.0/12", "10.120.0.0/16"];
    // In a bridge, pods reach the node itself in the same way.
    for (recording, routed) in [("flannel-vxlan-4096", services.to_vec()), ("flannel-host-gw", [&services[..], &["$(NODE_ADDRESS)/32"]].concat())] {
        let mut objects = rendered(&changed(recording, "ServiceCIDR kubernetes", &change)).unwrap();
        let conflist = file(&mut objects, "flannel", "cni.conflist");
        let policies = conflist["plugins"][0]["delegate"]["policies"].as_array().unwrap();
        let policies: Vec<Value> = policies.iter().map(|policy| policy["value"]["Settings"].clone()).collect();
        let inside: Vec<&str> = ["10.244.0.0/16"].into_iter().chain(routed.iter().copied()).collect();
        let routes = routed.iter().map(|network| json!({"DestinationPrefix": network, "NeedEncap": true}));
        assert_eq!(policies, [json!({"Exceptions": inside})].into_iter().chain(routes).collect::<Vec<_>>(), "{recording}");
    }
}

#[test]
fn the_name_resolution_of_pods_is_what_is_known_of_it() {
    let dns = |objects: &[Value]| file(&mut rendered(objects).unwrap(), "flannel", "cni.conflist")["plugins"][0]["delegate"]["dns"].clone();
    let both = recording("flannel-vxlan-4096");
    assert_eq!(dns(&both), json!({"nameservers": ["10.96.0.10"], "search": ["svc.cluster.local"]}));
    let unnamed = changed("flannel-vxlan-4096", "ConfigMap kubeadm-config", &Value::Null);
    assert_eq!(dns(&unnamed), json!({"nameservers": ["10.96.0.10"], "search": []}));
    assert_eq!(dns(&changed("flannel-vxlan-4096", "Service kube-dns", &Value::Null)), Value::Null);
}

#[test]
fn old_versions_of_kube_proxy_need_a_gate_for_direct_server_return() {
    for (version, gates) in [("v1.32.9", json!({"WinDSR": true})), ("v1.33.0", Value::Null), ("v1.36.3", Value::Null), ("latest", Value::Null)] {
        let containers = json!([{"name": "kube-proxy", "image": format!("registry.k8s.io/kube-proxy:{version}")}]);
        let change = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let mut objects = rendered(&changed("flannel-vxlan-4096", "DaemonSet kube-proxy", &change)).unwrap();
        assert_eq!(file(&mut objects, "kube-proxy", "config.json")["featureGates"], gates, "{version}");
    }
}

#[test]
fn pods_start_again_when_their_settings_change_and_only_then() {
    let linux = recording("flannel-vxlan-4096");
    let mut before = rendered(&linux).unwrap();
    let mut other_domain = rendered(&changed("flannel-vxlan-4096", "ConfigMap kubeadm-config", &Value::Null)).unwrap();
    let mut other_name = rendered(&flannel_named("flannel-vxlan-4096", json!({"Type": "vxlan", "VNI": 4096, "Port": 4789}), "vxlan0")).unwrap();
    let elsewhere = Parameters { image: "mirror.example.com/capw:v0.3.0".into(), ..parameters() };
    let mut other_image = windows_side(&read(&linux), &elsewhere).unwrap();
    let mut with_secrets = windows_side(&read(&linux), &Parameters { pull_secrets: vec!["mirror".into()], ..parameters() }).unwrap();
    for set in ["flannel", "kube-proxy"] {
        assert_ne!(digest(&mut with_secrets, set), digest(&mut before, set), "{set}: one that is named no more has to be seen");
        let of_pod =
            |objects: &mut [Value]| object(objects, &format!("DaemonSet {set}")).unwrap()["spec"]["template"]["spec"]["imagePullSecrets"].clone();
        assert_eq!((of_pod(&mut before), of_pod(&mut with_secrets)), (Value::Null, json!([{"name": "mirror"}])), "{set}");
        assert_ne!(digest(&mut other_name, set), digest(&mut before, set), "{set}");
        assert_eq!(digest(&mut other_image, set), digest(&mut before, set), "{set}");
    }
    assert_ne!(digest(&mut other_domain, "flannel"), digest(&mut before, "flannel"));
    assert_eq!(digest(&mut other_domain, "kube-proxy"), digest(&mut before, "kube-proxy"));
    assert_ne!(digest(&mut before, "flannel"), digest(&mut before, "kube-proxy"));
}

/// The applied objects must not be mistaken for a foreign Windows side.
#[test]
fn objects_that_were_applied_change_nothing() {
    let linux = recording("flannel-vxlan-4096");
    let first = rendered(&linux).unwrap();
    let applied = [linux.clone(), first.clone()].concat();
    assert_eq!(read(&applied), read(&linux));
    assert_eq!(role(&read(&applied)).as_str(), "Run");
    assert_eq!(rendered(&applied).unwrap(), first);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_anywhere_gives_objects_of_ours_or_a_reason(
        known in 0..KNOWN.len(), at_object: prop::sample::Index, at: prop::sample::Index, value in super::input::strange()
    ) {
        let mut objects = recording(KNOWN[known].name);
        let number = at_object.index(objects.len());
        let mut found = Vec::new();
        super::input::ways(&objects[number], "", &mut found);
        let way = at.get(&found).clone();
        *objects[number].pointer_mut(&way).unwrap() = value;
        match rendered(&objects) {
            Ok(objects) => prop_assert!(objects.iter().all(is_ours), "{objects:#?}"),
            Err(refusal) => prop_assert!(!refusal.to_string().is_empty()),
        }
    }
}
