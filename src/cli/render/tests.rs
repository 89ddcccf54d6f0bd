//! Tests of `capw render` with files, as a person calls it.

use std::fs;
use std::path::PathBuf;

use clap::Parser;

use super::Render;
use crate::bootstrap::delivery::SeedImage;
use crate::bootstrap::read::Delivered;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    render: Render,
}

fn render(arguments: &[&str]) -> Result<String, String> {
    Line::try_parse_from(["render"].iter().chain(arguments)).map_err(|e| e.to_string())?.render.run()
}

const MACHINE: &str = "
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: WindowsMachineTemplate
metadata: {name: big}
spec: {template: {spec: {image: windows-server-2025, cpus: 16, memory: 64Gi}}}
";

const CONFIG: &str = "
apiVersion: bootstrap.cluster.x-k8s.io/v1alpha1
kind: WindowsBootstrapConfigTemplate
metadata: {name: pool}
spec:
  template:
    spec:
      windowsRelease: \"2025\"
";

/// A file that is deleted with the directory.
fn file(directory: &tempfile::TempDir, text: &str) -> String {
    let path = directory.path().join("in.yaml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn samples() -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/samples");
    let mut files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "yaml") && fs::read_to_string(path).unwrap().contains("kind: WindowsBootstrapConfig"));
    assert!(!files.is_empty(), "no sample has a WindowsBootstrapConfig");
    files
}

#[test]
fn samples_render_and_a_guest_can_read_them() {
    for sample in samples() {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().to_str().unwrap();
        let said = render(&["-f", sample.to_str().unwrap(), "--output", output]).unwrap();
        let machine = fs::read_dir(output).unwrap().next().unwrap().unwrap().path();
        assert!(said.contains("Kubernetes Secret") && said.contains(machine.to_str().unwrap()), "{said}");
        let drive = fs::read(machine.join("config-drive.iso")).unwrap();
        let payload = Delivered::of(&SeedImage::Drive(drive.clone())).unwrap().payload;
        for (path, bytes) in &payload.files {
            assert_eq!(&fs::read(machine.join(path)).unwrap(), bytes, "{path}");
        }
        let again = tempfile::tempdir().unwrap();
        render(&["-f", sample.to_str().unwrap(), "--output", again.path().to_str().unwrap()]).unwrap();
        let name = machine.file_name().unwrap();
        assert!(fs::read(again.path().join(name).join("config-drive.iso")).unwrap() == drive, "not the same bytes a second time");
    }
}

#[test]
fn explain_is_for_people() {
    for sample in samples() {
        let said = render(&["-f", sample.to_str().unwrap(), "--explain"]).unwrap();
        assert!(said.contains("kubeadm.exe join") && said.contains("why"), "{said}");
        assert!(!said.contains("placeholdertoken"));
    }
}

#[test]
fn flags_and_documents_are_put_together() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "# first\n---\n{CONFIG}---\n{MACHINE}---\nkind: Cluster\napiVersion: cluster.x-k8s.io/v1beta2\nmetadata: {{name: c}}\nspec: {{controlPlaneEndpoint: {{host: api.example.com, port: 443}}, topology: {{version: v1.36.1}}}}\n"
    );
    let path = file(&directory, &text);
    let said = render(&["-f", &path]).unwrap();
    assert!(said.contains("apiServerEndpoint: 'api.example.com:443'") && said.contains("pause:3.10.2"), "{said}");
    assert!(said.contains("cpu: '260m'"), "reserves of 16 processors: {said}");
    let said = render(&["-f", &path, "--endpoint", "other:6443", "--kubernetes-version", "v1.33.0"]).unwrap();
    assert!(said.contains("apiServerEndpoint: 'other:6443'") && !said.contains("shutdownGracePeriod:"), "{said}");
}

/// A kubelet that is newer than the API server is refused, for machines of a deployment and of a pool.
#[test]
fn a_kubelet_is_not_newer_than_the_control_plane() {
    let directory = tempfile::tempdir().unwrap();
    let workers = |kind: &str, version: &str| {
        format!(
            "apiVersion: cluster.x-k8s.io/v1beta2\nkind: {kind}\nmetadata: {{name: w}}\nspec: {{template: {{spec: {{version: {version}, bootstrap: {{configRef: {{name: pool}}}}, infrastructureRef: {{name: big}}}}}}}}\n"
        )
    };
    for control_plane in [
        "kind: KubeadmControlPlane\nspec: {version: v1.34.2}",
        "kind: ExternalControlPlane\nspec: {}\nstatus: {version: v1.34.2}",
        "kind: KubeadmControlPlane\nspec: {version: v1.36.0}\nstatus: {version: v1.34.2}",
    ] {
        let control_plane = format!("apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nmetadata: {{name: c}}\n{control_plane}\n");
        for kind in ["MachineDeployment", "MachinePool"] {
            let text = |version: &str| format!("{CONFIG}---\n{MACHINE}---\n{control_plane}---\n{}", workers(kind, version));
            let error = render(&["-f", &file(&directory, &text("v1.35.0"))]).unwrap_err();
            assert!(error.contains("v1.35.0") && error.contains("the API server is 1.34"), "{kind} {control_plane}: {error}");
            render(&["-f", &file(&directory, &text("v1.34.9"))]).unwrap();
        }
    }
}

#[test]
fn errors_name_file_document_field_and_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let with = |text: &str, arguments: &[&str]| {
        let path = file(&directory, text);
        render(&[&["-f", path.as_str()], arguments].concat()).unwrap_err()
    };
    let version = ["--kubernetes-version", "v1.36.3"];
    for (text, arguments, wanted) in [
        (MACHINE.to_owned(), &version[..], &["no document is a WindowsBootstrapConfig", "-f"][..]),
        (CONFIG.to_owned(), &[], &["in.yaml: document 1 (WindowsBootstrapConfigTemplate pool)", "--kubernetes-version"]),
        (CONFIG.to_owned(), &["--kubernetes-version", "v1.20.0"], &["document 1", "v1.20.0", "older than v1.31"]),
        (
            CONFIG.to_owned(),
            &["--kubernetes-version", "v1.36.3", "--endpoint", "https://x:1"],
            &["controlPlaneEndpoint", "https://x:1", "without a scheme"],
        ),
        (CONFIG.to_owned(), &["--kubernetes-version", "v1.36.3", "--ca-file", "/nowhere"], &["--ca-file /nowhere"]),
        (
            format!("{CONFIG}      kublet: {{}}\n      kubelet: {{maxPod: 3}}\n"),
            &version,
            &["document 1", "spec.template.spec.kubelet.maxPod", "no such field"],
        ),
        (format!("{CONFIG}      kubelet: {{maxPods: many}}\n"), &version, &["document 1", "spec.template.spec.kubelet.maxPods", "many"]),
        (format!("{CONFIG}      kubelet: {{maxPods: 0}}\n"), &version, &["spec.kubelet.maxPods", "1 to 250"]),
        (format!("{CONFIG}      containerd: {{line: \"1.7\"}}\n"), &version, &["spec.containerd.line", "1.7", "2.0.4"]),
        (format!("{CONFIG}---\n{}", MACHINE.replace("64Gi", "2Gi")), &version, &["spec.memory", "2048Mi", "more memory"]),
        (format!("{CONFIG}---\nnot: {{an: object}}\n"), &version, &["document 2", "kind"]),
        (format!("{CONFIG}---\na: [\n"), &version, &["document 2"]),
    ] {
        let error = with(&text, arguments);
        assert!(wanted.iter().all(|part| error.contains(part)), "{error:?} lacks one of {wanted:?}");
    }
    assert!(render(&["-f", "/nowhere.yaml"]).unwrap_err().contains("/nowhere.yaml"));
}

#[test]
fn what_a_secret_holds_is_in_no_error() {
    let directory = tempfile::tempdir().unwrap();
    for (field, value) in [("stringData", "271828"), ("data", "271828"), ("data", "not-base64-271828")] {
        let secret = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{field}: {{password: {value}}}\n");
        let path = file(&directory, &format!("{CONFIG}---\n{secret}"));
        let error = render(&["-f", &path, "--kubernetes-version", "v1.36.3"]).unwrap_err();
        assert!(error.contains(&format!("document 2 (Secret s): {field}.password: ")) && !error.contains("271828"), "{error}");
    }
}
