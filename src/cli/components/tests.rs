//! Tests of `capw components` as a person calls it.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use super::Components;
use super::What::{Objects, Render};
use crate::components::{NAMESPACE, Parameters, read, windows_side};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    components: Components,
}

fn render(files: &[&Path]) -> Result<(String, ExitCode), String> {
    let files = files.iter().map(|file| file.to_str().unwrap());
    match Line::try_parse_from(["components", "render", "--from"].into_iter().chain(files)).unwrap().components.what {
        Render(render) => render.run(),
        other => panic!("{other:?}"),
    }
}

const IMAGE: &str = "registry.example.com/capw:v0.2.0";
const API_SERVER: &str = "https://10.0.0.10:6443";

/// The output of `capw components objects`; the error comes from the command line or from the recording.
fn objects(line: &[&str]) -> Result<String, String> {
    match Line::try_parse_from(["components", "objects"].iter().chain(line)).map_err(|e| e.to_string())?.components.what {
        Objects(objects) => objects.run(),
        other => panic!("{other:?}"),
    }
}

fn recording(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/components/fixtures").join(name)
}

#[test]
fn the_exit_code_is_the_answer() {
    for (file, words, code) in [
        ("calico-operator-installed.yaml", "\n  printf %s '{\"apiVersion\":\"v1\",\"data\":", ExitCode::FAILURE),
        ("flannel-vxlan-4096.yaml", "Nothing stands in the way of Windows nodes.", ExitCode::SUCCESS),
        ("flannel-manifest.yaml", "kubectl patch -n kube-flannel configmap/kube-flannel-cfg --type merge -p '{\"data\":", ExitCode::FAILURE),
        ("cilium.yaml", "On Windows nodes: Refuse.", ExitCode::FAILURE),
    ] {
        let (text, found) = render(&[&recording(file)]).unwrap();
        assert!(text.contains(words), "{file}: {text}");
        assert_eq!(format!("{found:?}"), format!("{code:?}"), "{file}");
    }
}

#[test]
fn several_files_are_one_cluster_and_an_object_that_is_in_two_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let whole = recording("calico-operator-vxlan.yaml");
    let objects: Vec<serde_json::Value> = serde_saphyr::from_multiple(&fs::read_to_string(&whole).unwrap()).unwrap();
    let (one, two) = objects.split_at(objects.len() / 2);
    let list = |name: &str, items: &[serde_json::Value]| {
        let path = folder.path().join(name);
        fs::write(&path, serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
        path
    };
    let (one, two) = (list("one.json", one), list("two.json", two));
    assert_eq!(render(&[&one, &two]).unwrap().0, render(&[&whole]).unwrap().0);
    assert_eq!(render(&[&whole, &one, &two]).unwrap().0, render(&[&whole]).unwrap().0);
}

#[test]
fn files_that_are_no_recordings_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.yaml");
    for (text, words) in [
        ("", "--from: the files hold no objects"),
        ("# nothing\n---\n", "--from: the files hold no objects"),
        ("a: [", "x.yaml: document 1: "),
        ("{", "x.yaml: document 1: "),
        ("kind: Node\n---\n- 1\n", "x.yaml: document 2: kind: it is missing"),
    ] {
        fs::write(&file, text).unwrap();
        let error = render(&[&file]).unwrap_err();
        assert!(error.contains(words), "{text:?}: {error}");
    }
    assert!(render(&[&folder.path().join("none")]).unwrap_err().contains("none: "));
}

#[test]
fn the_objects_are_printed_as_documents_in_their_order() {
    let file = recording("flannel-vxlan-4096.yaml");
    let flags = ["--pull-secret", "mirror", "--pull-secret", "other"];
    let text = objects(&[&["--from", file.to_str().unwrap(), "--image", IMAGE, "--api-server", API_SERVER][..], &flags].concat()).unwrap();
    let printed: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
    let recorded: Vec<serde_json::Value> = serde_saphyr::from_multiple(&fs::read_to_string(&file).unwrap()).unwrap();
    let parameters = Parameters { image: IMAGE.into(), api_server: API_SERVER.into(), pull_secrets: vec!["mirror".into(), "other".into()] };
    assert_eq!(printed, windows_side(&read(&recorded), &parameters).unwrap());
    assert_eq!((&printed[0]["kind"], &printed[0]["metadata"]["name"]), (&"Namespace".into(), &NAMESPACE.into()));
    for set in printed.iter().filter(|object| object["kind"] == "DaemonSet") {
        let container = &set["spec"]["template"]["spec"]["containers"][0];
        assert_eq!((&container["image"], &container["env"][2]["value"]), (&IMAGE.into(), &API_SERVER.into()));
    }
}

#[test]
fn where_there_are_no_objects_nothing_is_printed_but_the_reason() {
    for (file, words) in [
        ("flannel-manifest.yaml", "components: VniBelow4096: ConfigMap kube-flannel/kube-flannel-cfg"),
        ("flannel-gbp.yaml", "components: GbpOn: ConfigMap kube-flannel/kube-flannel-cfg"),
        ("calico-operator-vxlan.yaml", "components: WindowsDataplaneOff: Installation default, spec.calicoNetwork.windowsDataplane"),
    ] {
        let file = recording(file);
        let error = objects(&["--from", file.to_str().unwrap(), "--image", IMAGE, "--api-server", API_SERVER]).unwrap_err();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn names_that_nodes_cannot_use_are_refused() {
    let file = recording("flannel-vxlan-4096.yaml");
    let call =
        |image: &str, server: &str| objects(&["--from", file.to_str().unwrap(), &format!("--image={image}"), &format!("--api-server={server}")]);
    for image in ["", "a b", "-capw", "$(X)", "a\"b"] {
        let error = call(image, API_SERVER).unwrap_err();
        assert!(error.contains("--image") && (image.is_empty() || error.contains("e.g. registry.example.com/capw")), "{image:?}: {error}");
    }
    for server in ["10.0.0.10:6443", "http://10.0.0.10", "https://", "https://a:b@10.0.0.10", "https://10.0.0.10/api", "https://$(X)"] {
        let error = call(IMAGE, server).unwrap_err();
        assert!(error.contains("--api-server") && error.contains("e.g. https://10.0.0.10:6443"), "{server}: {error}");
    }
    for server in ["https://10.0.0.10:6443", "https://api.lab.example.com", "https://[fd00::1]:6443"] {
        assert!(call("mirror.example.com:5000/capw@sha256:00", server).is_ok(), "{server}");
    }
}

/// The page calls the program with a file that its reader has; here that file is a recording.
#[test]
fn the_commands_of_the_page_about_pod_networks_are_understood() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pod-network.md")).unwrap();
    let commands: Vec<&str> = page.lines().filter(|line| line.starts_with("capw components objects ")).collect();
    assert!(!commands.is_empty());
    let file = recording("flannel-vxlan-4096.yaml");
    for command in commands {
        let command = command.split('>').next().unwrap().replace("cluster.yaml", file.to_str().unwrap());
        let words: Vec<&str> = command.split_whitespace().skip(3).collect();
        let printed = objects(&words).unwrap();
        assert!(printed.starts_with("---\n"), "{command}: {printed}");
    }
}
