//! Tests of `capw compat` as a person or a script calls it.

use std::process::ExitCode;

use clap::Parser;

use super::Compat;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    compat: Compat,
}

fn compat(arguments: &str) -> Result<(String, ExitCode), String> {
    Line::try_parse_from(["compat"].into_iter().chain(arguments.split_whitespace())).map_err(|e| e.to_string())?.compat.run()
}

#[test]
fn the_exit_code_is_the_answer() {
    for (arguments, word, code) in [
        (
            "--kubernetes v1.36.3 --windows 2022 --containerd 2.3.7 --pause 3.10.2 --cni calico@3.32 --cloudbase-init 1.1.8",
            "answer: yes",
            ExitCode::SUCCESS,
        ),
        ("--kubernetes v1.34.4 --windows 2019", "answer: yes", ExitCode::SUCCESS),
        ("--windows 2025 --containerd 1.7.29", "answer: no", ExitCode::FAILURE),
        ("--kubernetes v1.36.3 --runtime docker", "answer: no", ExitCode::FAILURE),
        ("--windows 2025 --cni calico@3.32.1", "answer: unknown", ExitCode::FAILURE),
        ("--kubernetes v1.36.3 --containerd 2", "answer: depends", ExitCode::FAILURE),
    ] {
        let (text, got) = compat(arguments).unwrap();
        assert!(text.contains(word), "{arguments}: {text}");
        assert_eq!(format!("{got:?}"), format!("{code:?}"), "{arguments}");
        let json: serde_json::Value = serde_json::from_str(&compat(&format!("{arguments} -o json")).unwrap().0).unwrap();
        assert_eq!(format!("answer: {}", json["answer"].as_str().unwrap()), word);
    }
}

#[test]
fn what_is_shown_as_the_way_out_is_accepted() {
    let (text, _) = compat("--kubernetes v1.36.3 --windows 10.0.26100.4652 --containerd 1.7.29 --network overlay --cni flannel@0.28.9").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("  capw compat ")).unwrap_or_else(|| panic!("{text}"));
    let (again, code) = compat(line).unwrap();
    assert!(again.contains("answer: yes"), "{line}: {again}");
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
}

#[test]
fn wrong_flags_are_named() {
    for (arguments, words) in [
        ("", "nothing is asked"),
        ("--kubernetes newest", "--kubernetes: \"newest\" is not understood: expected a version, e.g. v1.36.3"),
        ("--windows 95", "--windows: \"95\" is not understood: expected 2019, 2022, 2025 or a build"),
        ("--cni calico@new", "--cni: \"calico@new\""),
        ("--containerd 2.3.7 --runtime docker", "cannot be used with"),
        ("list --windows 2025", "unexpected argument"),
    ] {
        let error = compat(arguments).unwrap_err();
        assert!(error.contains(words), "{arguments}: {error}");
    }
}

#[test]
fn the_list_is_the_page() {
    let (text, _) = compat("list").unwrap();
    assert!(text.starts_with("### kubernetes\n") && text.contains("| `windows 2025, cni calico` | unknown |"), "{text}");
}
