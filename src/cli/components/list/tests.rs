//! Tests of `capw components list` as a person calls it.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};

use super::{List, OwnImages, read};
use crate::kube_api::cluster::Cluster;
use crate::kube_api::mock::{Script, refuse, step};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    list: List,
}

const IMAGE: &str = "registry.example.com/capw:v0.2.0";

fn list(arguments: &[&str]) -> Result<(String, ExitCode), String> {
    let line = ["list", "--image", IMAGE].iter().chain(arguments);
    Line::try_parse_from(line).map_err(|e| e.to_string())?.list.run()
}

fn sample(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples").join(name).to_str().unwrap().to_owned()
}

fn is_success(code: ExitCode) -> bool {
    format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS)
}

#[test]
fn the_page_about_programs_shows_what_is_printed() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/kubelet-and-containerd.md")).unwrap();
    let (command, rest) = page.split_once("$ capw components list ").unwrap().1.split_once('\n').unwrap();
    let shown = rest.split_once("```").unwrap().0;
    let words: Vec<String> =
        command.split_whitespace().map(|word| word.replace("config/samples/own-mirror.yaml", &sample("own-mirror.yaml"))).collect();
    let (printed, code) = Line::try_parse_from(["list".to_owned()].into_iter().chain(words)).unwrap().list.run().unwrap();
    assert!(shown == printed && is_success(code), "docs/kubelet-and-containerd.md: below the command write:\n{printed}");
}

#[test]
fn what_capw_brings_to_windows_nodes_is_listed_too() {
    let (text, code) = list(&["-f", &sample("flannel.yaml"), "-o", "json"]).unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    let places: Vec<(&str, &str)> =
        answer["items"].as_array().unwrap().iter().map(|item| (item["place"].as_str().unwrap(), item["name"].as_str().unwrap())).collect();
    let expected = [
        ("registry", "agnhost"),
        ("registry", "capw"),
        ("registry", "pause"),
        ("download", "cni-plugins"),
        ("download", "flannel-cni"),
        ("download", "flanneld"),
        ("download", "kube-proxy"),
        ("machineImage", "containerd"),
        ("machineImage", "kube-log-runner"),
        ("machineImage", "kubeadm"),
        ("machineImage", "kubelet"),
    ];
    assert_eq!(places, expected);
    let [agnhost, capw, _, _, _, _, kube_proxy, ..] = answer["items"].as_array().unwrap().as_slice() else { panic!("{text}") };
    assert_eq!(capw["usedBy"], json!(["CAPW", "MachineDeployment flannel"]), "Windows nodes pull it");
    assert_eq!((&agnhost["usedBy"], &agnhost["digest"]), (&json!(["MachineDeployment flannel"]), &Value::Null));
    assert_eq!(kube_proxy["address"], "https://dl.k8s.io/release/v1.36.3/bin/windows/amd64/kube-proxy.exe");
    assert!(kube_proxy["digest"].as_str().unwrap().starts_with("sha256:1f0e") && is_success(code), "{text}");
    // Without the downloads, the image must contain the same programs.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flannel.yaml");
    let manifest = fs::read_to_string(sample("flannel.yaml")).unwrap();
    fs::write(&file, manifest.split_once("      programs:").unwrap().0.to_owned() + "      windowsRelease: \"2022\"\n").unwrap();
    let (text, _) = list(&["-f", file.to_str().unwrap()]).unwrap();
    for line in [
        r"VM image  flanneld         C:\k\flanneld.exe",
        r"VM image  flannel-cni      C:\opt\cni\bin\flannel.exe",
        r"VM image  kube-proxy       C:\k\kube-proxy.exe",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// Two versions of Kubernetes are two downloads, and a program that both need is listed once.
#[test]
fn what_differs_is_listed_for_each_that_asks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    let digest = "0".repeat(64);
    let deployment = |name: &str, version: &str| {
        format!(
            "---\napiVersion: cluster.x-k8s.io/v1beta2\nkind: MachineDeployment\nmetadata: {{name: {name}}}\nspec: {{template: {{spec: {{version: {version}, bootstrap: {{configRef: {{kind: WindowsBootstrapConfigTemplate, name: c}}}}, infrastructureRef: {{name: m}}}}}}}}\n"
        )
    };
    let text = format!(
        "apiVersion: bootstrap.cluster.x-k8s.io/v1alpha1\nkind: WindowsBootstrapConfigTemplate\nmetadata: {{name: c}}\nspec: {{template: {{spec: {{containerd: {{sandboxImage: 'mirror.example.com/pause@sha256:{digest}'}}, programs: {{downloads: [{{name: kubelet, digest: 'sha256:{digest}'}}]}}}}}}}}\n{}{}---\napiVersion: bootstrap.cluster.x-k8s.io/v1alpha1\nkind: WindowsBootstrapConfigTemplate\nmetadata: {{name: unused}}\nspec: {{template: {{spec: {{}}}}}}\n",
        deployment("a", "v1.35.1"),
        deployment("b", "v1.36.3"),
    );
    fs::write(&file, text).unwrap();
    let (text, code) = list(&["-f", file.to_str().unwrap()]).unwrap();
    for (start, end) in [
        (format!("registry  pause            mirror.example.com/pause@sha256:{digest}"), "MachineDeployment a, MachineDeployment b"),
        ("download  kubelet          https://dl.k8s.io/release/v1.35.1/".to_owned(), "MachineDeployment a"),
        ("download  kubelet          https://dl.k8s.io/release/v1.36.3/".to_owned(), "MachineDeployment b"),
        ("left out: ".to_owned(), "give --kubernetes-version v1.36.3"),
    ] {
        assert!(text.lines().any(|line| line.starts_with(&start) && line.ends_with(end)), "{start} … {end}: {text}");
    }
    assert!(!is_success(code), "a configuration that nothing names has no version: {text}");
    let (text, code) = list(&["-f", file.to_str().unwrap(), "--kubernetes-version", "v1.36.3"]).unwrap();
    assert!(is_success(code) && !text.contains("left out"), "{text}");
}

#[test]
fn pools_of_both_kinds_are_listed() {
    for (name, user) in [("standalone.yaml", "WindowsNodePool windows"), ("machine-pool.yaml", "MachinePool pool")] {
        let (text, code) = list(&["-f", &sample(name)]).unwrap();
        assert!(is_success(code) && text.lines().any(|line| line.starts_with("registry  pause ") && line.ends_with(user)), "{text}");
    }
}

/// A MachineDeployment may use our configurations with another provider's machines, and another provider's configurations may have the same name.
#[test]
fn objects_of_other_providers_are_none_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    let deployment = |name: &str, config: &str, machine: &str| {
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": {"name": name}, "spec": {"template": {"spec": {
            "version": "v1.36.3", "bootstrap": {"configRef": {"kind": config, "name": "c"}}, "infrastructureRef": {"kind": machine, "name": "other"}}}}})
    };
    let documents = [
        json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfigTemplate", "metadata": {"name": "c"}, "spec": {"template": {"spec": {}}}}),
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachineTemplate", "metadata": {"name": "m"}, "spec": {"template": {"spec": {"image": "w"}}}}),
        deployment("linux", "KubeadmConfigTemplate", "WindowsMachineTemplate"),
        deployment("windows", "WindowsBootstrapConfigTemplate", "VSphereMachineTemplate"),
    ];
    let text = |documents: &[Value]| documents.iter().map(|document| format!("---\n{document}\n")).collect::<String>();
    fs::write(&file, text(&documents)).unwrap();
    let (listed, code) = list(&["-f", file.to_str().unwrap()]).unwrap();
    assert!(is_success(code) && listed.contains("MachineDeployment windows") && !listed.contains("MachineDeployment linux"), "{listed}");
    let lost = deployment("lost", "WindowsBootstrapConfigTemplate", "WindowsMachineTemplate");
    fs::write(&file, text(&[&documents[..], &[lost]].concat())).unwrap();
    let (listed, code) = list(&["-f", file.to_str().unwrap()]).unwrap();
    assert!(
        !is_success(code) && listed.contains("left out: ") && listed.contains("\"other\"") && listed.contains("MachineDeployment windows"),
        "{listed}"
    );
}

/// The same objects are read from the management cluster, without the copies of single machines.
#[tokio::test]
async fn objects_come_from_the_management_cluster_or_from_files() {
    let pool: Value = serde_saphyr::from_multiple(&fs::read_to_string(sample("standalone.yaml")).unwrap()).unwrap().remove(1);
    let copy = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig", "spec": {},
        "metadata": {"name": "copy", "namespace": "lab", "labels": {"infrastructure.cluster.x-k8s.io/windows-node-pool": "windows"}}});
    let items = |items: Value| json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
    let in_namespace = |namespace: &str, object: &Value| {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    let (bootstrap, infrastructure, core) =
        ("bootstrap.cluster.x-k8s.io/v1alpha1", "infrastructure.cluster.x-k8s.io/v1alpha1", "cluster.x-k8s.io/v1beta2");
    let answered = async |scope: &str, namespace: Option<&str>, flags: &[&str], pools: &[Value]| {
        let of = |group: &str, plural: &str| format!("GET /apis/{group}/{scope}{plural}");
        let (client, _script) = Script::new(vec![
            step(&of(bootstrap, "windowsbootstrapconfigs"), items(json!([copy]))),
            step(&of(bootstrap, "windowsbootstrapconfigtemplates"), items(json!([]))),
            step(&of(infrastructure, "windowsmachinetemplates"), items(json!([]))),
            step(&of(infrastructure, "windowsnodepools"), items(json!(pools))),
            step(&of(infrastructure, "windowsclusters"), items(json!([]))),
            refuse(&of(core, "machinedeployments"), 404, "Failed to parse error data"),
            refuse(&of(core, "machinepools"), 404, "Failed to parse error data"),
        ]);
        let found = read(&Cluster::new(client), namespace).await.unwrap();
        let line = Line::try_parse_from(["list"].iter().chain(flags)).unwrap().list;
        line.answer(&OwnImages::named(IMAGE), &found).map(|answer| super::text(&answer))
    };
    let (printed, _) = list(&["-f", &sample("standalone.yaml")]).unwrap();
    let lab = in_namespace("lab", &pool);
    assert_eq!(answered("namespaces/lab/", Some("lab"), &[], std::slice::from_ref(&lab)).await.unwrap(), printed);
    // The same name in two namespaces is two pools, and a namespace without configurations is ignored.
    let all = answered("", None, &["-A"], &[lab, in_namespace("shop", &pool)]).await.unwrap();
    let pause = all.lines().find(|line| line.starts_with("registry  pause ")).unwrap();
    assert!(pause.ends_with("  WindowsNodePool lab/windows, WindowsNodePool shop/windows"), "{all}");
    assert_eq!(all.lines().count(), printed.lines().count(), "{all}");
    let error = answered("", None, &["-A"], &[]).await.unwrap_err();
    assert!(error.contains("no namespace has a WindowsBootstrapConfig"), "{error}");
}

#[test]
fn files_are_read_without_a_cluster() {
    let file = sample("standalone.yaml");
    for flags in [&["-n", "lab"][..], &["-A"], &["--kubeconfig", "none"]] {
        let error = list(&[&["-f", &file], flags].concat()).unwrap_err();
        assert!(error.contains("cannot be used with"), "{flags:?}: {error}");
    }
    let error = Line::try_parse_from(["list", "-f", file.as_str()]).unwrap().list.run().unwrap_err();
    assert!(error.contains("--image: with -f no cluster is asked"), "{error}");
    assert!(list(&["-A", "-n", "lab"]).unwrap_err().contains("--namespace"));
}
