//! `capw components render` as a person calls it.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use super::Components;
use super::What::Render;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    components: Components,
}

fn render(files: &[&Path]) -> Result<(String, ExitCode), String> {
    let files = files.iter().map(|file| file.to_str().unwrap());
    let Render(render) = Line::try_parse_from(["components", "render", "--from"].into_iter().chain(files)).unwrap().components.what;
    render.run()
}

fn recording(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/components/fixtures").join(name)
}

#[test]
fn the_exit_code_is_the_answer() {
    for (file, words, code) in [
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
