//! Tests with an example for every row, and properties of any question.

mod examples;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proptest::prelude::*;

use self::examples::EXAMPLES;
use crate::api::bootstrap_config::{ContainerdLine, UtilityVm, WindowsBootstrapConfigSpec, WindowsRelease};
use crate::compat::*;

/// Parses a question such as `kubernetes=v1.36.3 windows=2025`.
fn ask(text: &str) -> Question {
    text.split_whitespace().fold(Question::default(), |question, pair| {
        let (name, value) = pair.split_once('=').unwrap();
        let component = Component::ALL.into_iter().find(|component| component.name() == name).unwrap_or_else(|| panic!("{name}"));
        question.with(Part::parse(component, value).unwrap())
    })
}

#[test]
fn each_row_decides_its_example() {
    for (id, question, verdict) in EXAMPLES {
        let answer = answer(data(), &ask(question));
        let finding = answer.findings.iter().find(|finding| finding.row.as_deref() == Some(id));
        let finding = finding.unwrap_or_else(|| panic!("{question}: {id} does not decide: {:#?}", answer.findings));
        assert_eq!(finding.verdict, *verdict, "{question}");
    }
    let shown: BTreeSet<&str> = EXAMPLES.iter().map(|(id, ..)| *id).collect();
    let rows: BTreeSet<&str> = data().edges.iter().flat_map(|edge| &edge.rows).map(|row| row.id.as_str()).collect();
    assert_eq!(shown, rows, "each row needs one example");
    assert_eq!(EXAMPLES.len(), data().edges.iter().map(|edge| edge.rows.len()).sum::<usize>(), "an id stands twice");
}

#[test]
fn each_row_has_a_reason_a_source_and_a_date() {
    for row in data().edges.iter().flat_map(|edge| &edge.rows) {
        assert!(row.source.starts_with("https://") && !row.source.contains(' '), "{}: {}", row.id, row.source);
        let day: jiff::civil::Date = row.checked.parse().unwrap_or_else(|e| panic!("{}: {e}", row.id));
        assert!(day >= jiff::civil::date(2026, 11, 1), "{}: checked {day}", row.id);
        assert!(row.why.len() > 5 && !row.why.ends_with('.') && !row.why.contains('|'), "{}: {}", row.id, row.why);
        assert!(row.verdict != Verdict::Depends, "{}: depends is a result, not a fact", row.id);
    }
    // Every candidate is a product that a row names.
    for (component, choice) in &data().choices {
        assert!(!choice.candidates.is_empty() && choice.version > 1 || *component == Component::Pause);
        for candidate in &choice.candidates {
            let alone = answer(data(), &Question::default().with(candidate.clone()));
            assert!(alone.accepted(), "{candidate}: {:?}", alone.findings);
        }
    }
}

#[test]
fn without_a_row_the_answer_is_unknown() {
    for (question, words) in [
        ("cni=fishnet@1.0", "nothing is known about fishnet 1.0"),
        ("runtime=containerd@2.4.0", "nothing is known about containerd 2.4.0"),
        ("pause=registry.example.com/pause:3.10.2", "nothing is known about registry.example.com/pause:3.10.2"),
        ("windows=2025 cni=azure-cni", "nothing is known about Windows Server 2025 with azure-cni"),
        ("cloudbase-init=0.9.11", "nothing is known about cloudbase-init 0.9.11"),
        ("hypervisor=xenserver@8", "nothing is known about xenserver 8"),
    ] {
        let answer = answer(data(), &ask(question));
        assert_eq!(answer.verdict, Verdict::Unknown, "{question}: {:?}", answer.findings);
        assert!(answer.findings.iter().any(|finding| finding.why == words && finding.source.is_none()), "{question}: {:?}", answer.findings);
    }
}

#[test]
fn a_partial_version_stands_for_all_it_may_be() {
    for (question, verdict) in [
        ("kubernetes=v1.36.3 runtime=containerd@2.3", Verdict::Works),
        ("kubernetes=v1.36.3 runtime=containerd@2", Verdict::Depends),
        ("kubernetes=v1.36 windows=2022", Verdict::Works),
        ("windows=2025 runtime=containerd@1.7", Verdict::Fails),
        ("windows=2025 runtime=containerd@2.0", Verdict::Warns),
        ("cni=calico", Verdict::Depends),
    ] {
        assert_eq!(answer(data(), &ask(question)).verdict, verdict, "{question}");
    }
}

#[test]
fn the_nearest_set_is_the_cheapest_change() {
    for (question, changes) in [
        ("windows=2025 runtime=containerd@1.7.29", "containerd 2.3.7 instead of containerd 1.7.29"),
        ("kubernetes=v1.36.3 windows=2025 runtime=docker", "containerd 2.3.7 instead of docker"),
        ("kubernetes=v1.36.3 windows=2025 cni=calico@3.32.1", "Windows Server 2022 instead of Windows Server 2025"),
        ("windows=10.0.26100.4652 network=overlay", "the current updates of Windows Server 2025 instead of Windows Server 2025 (10.0.26100.4652)"),
        ("windows=2025 isolation=hyperv pause=registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10.2 instead of registry.k8s.io/pause:3.10"),
        ("kubernetes=v1.30.1 windows=2022", "Kubernetes v1.36.3 instead of Kubernetes v1.30.1"),
        ("windows=2022 image=ltsc2019", "isolation hyperv instead of isolation process"),
    ] {
        let mut asked = ask(question);
        if question.ends_with("ltsc2019") {
            asked = asked.with(Part::parse(Component::Isolation, "process").unwrap());
        }
        let nearest = answer(data(), &asked).nearest.unwrap_or_else(|| panic!("{question}: nothing near"));
        let said: Vec<String> = nearest.changes.iter().map(ToString::to_string).collect();
        assert_eq!(said.join(", "), changes, "{question}");
    }
}

#[test]
fn an_accepted_configuration_can_be_completed() {
    let releases = ["2019", "2022", "2025"];
    for minor in 31..=37 {
        for release in releases {
            let asked = format!("kubernetes=v1.{minor}.4 windows={release}");
            assert!(answer(data(), &ask(&asked)).accepted(), "{asked}");
            let whole = format!("{asked} runtime=containerd@2.3.7 pause=registry.k8s.io/pause:3.10.2 network=overlay cloudbase-init=1.1.8");
            let answer = answer(data(), &ask(&whole));
            assert!(answer.accepted(), "{whole}: {}", table(&answer));
        }
    }
}

#[test]
fn the_sandbox_image_fits_version_and_windows() {
    use WindowsRelease::{Server2019, Server2022, Server2025};
    for (windows, kubernetes, tag) in [
        (Server2019, "v1.31.2", "3.10"),
        (Server2022, "v1.33.9", "3.10"),
        (Server2022, "v1.34.0", "3.10.1"),
        (Server2019, "v1.35.9", "3.10.1"),
        (Server2022, "v1.36.3", "3.10.2"),
        (Server2022, "v1.37.0-rc.1", "3.10.2"),
        (Server2025, "v1.31.2", "3.10.2"),
        (Server2025, "v1.36.3", "3.10.2"),
    ] {
        assert_eq!(pause_image(windows, kubernetes), Some(format!("registry.k8s.io/pause:{tag}")), "{windows:?} {kubernetes}");
    }
    assert_eq!(pause_image(Server2022, "no version"), None);
}

#[test]
fn an_impossible_configuration_names_the_reason_and_the_nearest_set() {
    let spec = |windows, line, image: Option<&str>| {
        let mut spec = WindowsBootstrapConfigSpec { windows_release: windows, ..WindowsBootstrapConfigSpec::default() };
        spec.containerd.line = line;
        spec.containerd.sandbox_image = image.map(str::to_owned);
        spec
    };
    let with_hyper_v = |mut spec: WindowsBootstrapConfigSpec| {
        spec.containerd.hyper_v = Some(UtilityVm::default());
        spec
    };
    use ContainerdLine::{V1, V2};
    use WindowsRelease::{Server2019, Server2022, Server2025};
    for (good, version) in [
        (spec(Server2022, V2, None), "v1.36.3"),
        (spec(Server2019, V1, None), "v1.33.13"),
        (spec(Server2025, V2, None), "v1.37.0"),
        (spec(Server2022, V1, Some("registry.example.com/mirror/pause@sha256:00")), "v1.36.3"),
        (spec(Server2025, V2, Some("registry.k8s.io/pause:3.10.1")), "v1.36.3"),
        // The check ignores an invalid version, because the validation of the field reports it.
        (spec(Server2022, V2, None), "newest"),
    ] {
        assert_eq!(check(&good, version), Ok(()), "{good:?} {version}");
    }
    for (bad, version, field, words) in [
        (
            spec(Server2025, V1, None),
            "v1.36.3",
            "spec.containerd.line: \"1.7\"",
            &["2.0.4 or newer", "https://", "Nearest set that works: containerd 2.3.7 instead of containerd 1.7 (spec.containerd.line)"][..],
        ),
        (
            spec(Server2022, V2, Some("registry.k8s.io/pause:3.5")),
            "v1.36.3",
            "spec.containerd.sandboxImage: \"registry.k8s.io/pause:3.5\"",
            &["ContainerCreating", "registry.k8s.io/pause:3.10.2 instead"],
        ),
        (
            with_hyper_v(spec(Server2025, V2, Some("registry.k8s.io/pause:3.10.1"))),
            "v1.36.3",
            "spec.containerd.sandboxImage: \"registry.k8s.io/pause:3.10.1\"",
            &["HCS_E_IMAGE_MISMATCH", "registry.k8s.io/pause:3.10.2 instead"],
        ),
        (
            spec(Server2022, V2, None),
            "v1.29.0",
            "spec.version of the Machine: \"v1.29.0\"",
            &["kubeadm v1beta4", "one minor at a time", "Kubernetes v1.36.3 instead"],
        ),
        (spec(Server2022, V2, None), "v1.38.0", "spec.version of the Machine", &["supports 1.31 to 1.37", "update CAPW"]),
    ] {
        let said = check(&bad, version).unwrap_err().to_string();
        assert!(said.starts_with(field) && words.iter().all(|word| said.contains(word)), "{said}");
    }
}

#[test]
fn broken_data_is_refused_by_name() {
    let text = super::data::TEXT;
    for (from, to, words) in [
        ("verdict = \"fails\"", "verdict = \"maybe\"", "maybe"),
        ("kubernetes = [\"..1.31\"]", "kubernetes = [\"..one\"]", "kubernetes-before-1.31"),
        ("when = { kubernetes = [\"..1.31\"] }", "when = { windows = [\"2022\"] }", "when.kubernetes is missing"),
        ("basis = \"derived\"", "", "basis"),
    ] {
        let error = super::data::parse(&text.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(words), "{error} lacks {words}");
    }
}

#[test]
fn the_page_about_compatibility_has_all_rows() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/compatibility.md")).unwrap();
    let (_, known) = page.split_once("<!-- capw compat list -->\n").unwrap();
    assert!(known == markdown(data()), "docs/compatibility.md is stale: replace all after its last comment by what `capw compat list` prints");
}

/// The stable form of the JSON output.
#[test]
fn json_output_is_stable() {
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let components: BTreeSet<&str> = Component::ALL.iter().map(|component| component.name()).collect();
    for (_, question, _) in EXAMPLES {
        let json = serde_json::to_value(answer(data(), &ask(question))).unwrap();
        assert_eq!(keys(&json), set(&["answer", "question", "findings", "nearest"]));
        assert!(["yes", "no", "unknown", "depends"].contains(&json["answer"].as_str().unwrap()));
        assert!(json["question"].as_object().unwrap().iter().all(|(name, value)| components.contains(name.as_str()) && value.is_string()));
        for finding in json["findings"].as_array().unwrap() {
            assert_eq!(keys(finding), set(&["between", "parts", "verdict", "why", "row", "source", "checked", "basis"]));
            assert!(["works", "warns", "depends", "unknown", "fails"].contains(&finding["verdict"].as_str().unwrap()));
            assert!(finding["between"].as_array().unwrap().iter().all(|name| components.contains(name.as_str().unwrap())));
            assert!(finding["why"].is_string() && (finding["source"].is_string() || finding["row"].is_null()));
        }
        match &json["nearest"] {
            serde_json::Value::Null => {}
            nearest => {
                assert_eq!(keys(nearest), set(&["set", "changes"]));
                assert_eq!(keys(&nearest["set"]), keys(&json["question"]));
                assert!(nearest["changes"].as_array().unwrap().iter().all(|change| keys(change) == set(&["component", "from", "to"])));
            }
        }
    }
}

/// Returns questions with known and unknown products, complete and partial versions.
fn any_question() -> impl Strategy<Value = Question> {
    let some = |component: Component, pattern: &'static str| {
        let known = data().choices[&component].candidates.iter().map(Part::written).collect::<Vec<String>>();
        let value = prop_oneof![prop::sample::select(known), pattern.prop_map(|text: String| text)];
        prop::option::weighted(0.6, value.prop_map(move |text| Part::parse(component, &text).ok()))
    };
    let parts = (
        some(Component::Kubernetes, "v1[.](2[4-9]|3[0-9])([.][0-9])?"),
        some(Component::Windows, "2019|2022|2025|20H2|10[.]0[.](17763|20348|26100)[.][0-9]{4}"),
        some(Component::Runtime, "(containerd|docker|cri-o|shipyard)(@[12][.][0-9]([.][0-9])?)?"),
        some(Component::Pause, "(registry[.]k8s[.]io|k8s[.]gcr[.]io|quay[.]test)/pause(:3[.](5|9|10|10[.]1|11))?"),
        some(Component::Image, "ltsc20(19|22|25)|scratch"),
        some(Component::Isolation, "process|hyperv"),
        some(Component::Network, "overlay|l2bridge|transparent"),
        some(Component::Cni, "(calico|flannel|antrea|cilium|azure-cni|aws-vpc-cni|fishnet)(@[0-4][.][0-9]{1,2})?"),
        some(Component::CloudbaseInit, "[01][.][0-9][.][0-9]{1,2}"),
    );
    parts.prop_map(|(a, b, c, d, e, f, g, h, i)| {
        [a, b, c, d, e, f, g, h, i].into_iter().flatten().flatten().fold(Question::default(), |question, part| question.with(part))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_nearest_set_works_and_changes_only_what_it_says(question in any_question()) {
        let first = answer(data(), &question);
        prop_assert_eq!(&answer(data(), &question), &first, "the same question, another answer");
        let Some(nearest) = &first.nearest else {
            // Such a set always exists: every component has candidates.
            prop_assert!(first.accepted(), "{}", table(&first));
            return Ok(());
        };
        prop_assert!(!first.accepted());
        let again = answer(data(), &nearest.set);
        prop_assert!(again.accepted(), "{}\n{}", table(&first), table(&again));
        let changes: BTreeMap<Component, &Change> = nearest.changes.iter().map(|change| (change.component, change)).collect();
        prop_assert!(!changes.is_empty());
        for part in question.parts() {
            let now = nearest.set.get(part.component).unwrap();
            match changes.get(&part.component) {
                Some(change) => prop_assert!(change.from == *part && change.to == *now && now != part),
                None => prop_assert_eq!(now, part),
            }
        }
        prop_assert_eq!(nearest.set.parts().count(), question.parts().count());
        // Every change is necessary.
        for component in changes.keys() {
            let back = nearest.set.clone().with(question.get(*component).unwrap().clone());
            prop_assert!(!answer(data(), &back).accepted(), "{} need not change: {}", component, table(&first));
        }
    }

    #[test]
    fn any_text_is_a_part_or_an_error(text in ".{0,40}", which in 0usize..9) {
        let component = Component::ALL[which];
        match Part::parse(component, &text) {
            Ok(part) => prop_assert_eq!(Part::parse(component, &part.written()).map(|again| again.written()), Ok(part.written())),
            Err(error) => prop_assert!(error.to_string().starts_with(component.name())),
        }
    }
}
