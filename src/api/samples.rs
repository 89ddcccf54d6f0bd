//! Tests of the YAML that users copy: config/samples, the clusterctl templates and the README's first YAML must fit the types. A misspelt
//! or removed field fails here, because the re-serialised object must contain every value of the text.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::OwnKind;
use super::hypervisor::DRIVERS;

const CORE: &str = "cluster.x-k8s.io/v1beta2";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The YAML files of a directory, sorted. Panics if the directory has none.
fn yaml(directory: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(root().join(directory)).unwrap().map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.extension().is_some_and(|e| e == "yaml"));
    found.sort();
    assert!(!found.is_empty(), "{directory} holds no YAML");
    found
}

/// Replaces `${NAME:=default}` and `${NAME}` as clusterctl does.
fn substituted(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (variable, tail) = after.split_once('}').expect("${ without }");
        out.push_str(before);
        out.push_str(match variable.split_once(":=") {
            Some((_, default)) => default,
            None if variable == "KUBERNETES_VERSION" => "v1.36.3",
            None if variable == "WORKER_MACHINE_COUNT" => "1",
            None if variable == "CLUSTER_NAME" || variable == "NAMESPACE" => "sample",
            None => panic!("${{{variable}}}: neither known to clusterctl nor given a default"),
        });
        rest = tail;
    }
    out + rest
}

/// Panics with the path of the first value of `text` that `typed` lacks.
fn contains(typed: &Value, text: &Value, path: &str) {
    match (typed, text) {
        (Value::Object(typed), Value::Object(text)) => {
            for (key, value) in text {
                let path = format!("{path}.{key}");
                contains(typed.get(key).unwrap_or_else(|| panic!("{path}: no such field")), value, &path);
            }
        }
        (Value::Array(typed), Value::Array(text)) => {
            assert_eq!(typed.len(), text.len(), "{path}");
            for (index, (typed, text)) in typed.iter().zip(text).enumerate() {
                contains(typed, text, &format!("{path}[{index}]"));
            }
        }
        _ => assert_eq!(typed, text, "{path}"),
    }
}

fn check(object: &Value, file: &str) {
    let (version, kind) = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
    let place = format!("{file}: {kind} {}", object["metadata"]["name"].as_str().unwrap_or_default());
    if let Some(own) = OwnKind::of_object(object) {
        contains(&(own.round_trip)(object).unwrap_or_else(|error| panic!("{place}: {error}")), object, &place);
        return;
    }
    match (version, kind) {
        // The tests of the rendered bootstrap data compare RuntimeClasses with containerd's handlers.
        ("node.k8s.io/v1", "RuntimeClass") => {}
        (CORE, "Cluster" | "ClusterClass" | "MachineDeployment" | "MachineHealthCheck" | "MachinePool") => {}
        _ => panic!("{place}: {version} {kind} is no kind that a sample should hold"),
    }
}

#[test]
fn samples_hold_only_fields_that_exist() {
    for path in yaml("config/samples").into_iter().chain(yaml("config/clusterctl/templates")) {
        let file = path.strip_prefix(root()).unwrap().display().to_string();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&substituted(&read(&path))).unwrap_or_else(|e| panic!("{file}: {e}"));
        for object in objects.iter().filter(|o| !o.is_null()) {
            check(object, &file);
        }
    }
}

#[test]
#[should_panic(expected = ".spec.template.spec.cpu: no such field")]
fn a_misspelt_field_is_found() {
    let text = r#"{"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachineTemplate", "metadata": {"name": "a"},
        "spec": {"template": {"spec": {"image": "windows-server-2022", "cpu": 4}}}}"#;
    check(&serde_json::from_str(text).unwrap(), "a.yaml");
}

#[test]
fn pages_show_the_samples_as_they_are() {
    // The driver for trials has no page of its own: the README shows its sample.
    let drivers = DRIVERS.into_iter().filter(|driver| *driver != "simulated");
    let of_drivers = drivers.map(|driver| (format!("docs/hypervisors/{driver}.md"), format!("config/samples/{driver}.yaml")));
    let others = [
        ("README.md", "config/samples/three-nodes.yaml"),
        ("docs/pools.md", "config/samples/machine-pool.yaml"),
        ("docs/standalone.md", "config/samples/standalone.yaml"),
    ];
    let others = others.map(|(page, sample)| (page.to_owned(), sample.to_owned()));
    for (page, sample) in others.into_iter().chain(of_drivers) {
        let text = read(&root().join(&page));
        let (_, rest) = text.split_once(&format!("<!-- {sample} -->\n```yaml\n")).unwrap_or_else(|| panic!("{page}: no place for {sample}"));
        let (shown, _) = rest.split_once("```\n<!-- end -->").unwrap_or_else(|| panic!("{page}: {sample} does not end"));
        assert_eq!(shown, read(&root().join(&sample)), "{page}: copy {sample} between its markers");
    }
}

/// kubectl reads YAML 1.1, in which `Off` is a boolean; the parser of these tests does not.
#[test]
fn what_kubectl_takes_for_a_boolean_is_in_quotes() {
    let pages =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md"));
    let texts: Vec<PathBuf> = pages.chain(yaml("config/samples")).chain(["README.md", "CHANGELOG.md"].map(|page| root().join(page))).collect();
    for path in texts {
        for line in read(&path).lines() {
            let is_ended = |rest: &str| rest.is_empty() || rest.starts_with(['}', ',', '`', '"']) || rest.trim_start().starts_with('#');
            let is_bare = line.match_indices(": Off").any(|(at, found)| is_ended(&line[at + found.len()..]));
            assert!(!is_bare, "{}: Off without quotes: {line}", path.display());
        }
    }
}

#[test]
fn the_series_of_the_crate_is_one_that_clusterctl_knows() {
    let mut parts = env!("CARGO_PKG_VERSION").split('.');
    let (major, minor) = (parts.next().unwrap(), parts.next().unwrap());
    let series = format!("- major: {major}\n  minor: {minor}\n  contract: v1beta2\n");
    assert!(read(&root().join("metadata.yaml")).contains(&series), "metadata.yaml: no release series {major}.{minor}, which clusterctl needs");
}

#[test]
fn manifests_say_that_their_image_must_be_replaced() {
    assert!(read(&root().join("config/manager/deployment.yaml")).contains("image: example.invalid/capw/capw:unreleased\n"));
}
