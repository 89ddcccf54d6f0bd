//! Tests of the plan with every setting, with any subset of them, and with invalid ones.

use std::collections::BTreeSet;

use proptest::prelude::*;
use secrecy::SecretString;

use crate::api::bootstrap_config::{CloudProvider, CommandStep, PortRange, Route, SecretKeyRef, StepCheck};
use crate::bootstrap::delivery::read::Payload;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::plan::{Access, Item, Kind, Plan, Variables};
use crate::bootstrap::sample::{CANARIES, CANARY_PASSWORD, any_windows, facts, full, rendered};
use crate::bootstrap::{explain, paths, render};

fn plan(facts: &BootstrapFacts) -> Plan {
    render(facts).unwrap().plan
}

fn place(plan: &Plan, id: &str) -> usize {
    plan.items.iter().position(|item| item.id == id).unwrap_or_else(|| panic!("no item {id}"))
}

fn find<'a>(plan: &'a Plan, id: &str) -> &'a Item {
    &plan.items[place(plan, id)]
}

#[test]
fn the_explanation_of_everything_at_once() {
    insta::assert_snapshot!("explain-full", explain(&plan(&full())));
}

#[test]
fn items_come_after_those_they_need() {
    let plan = plan(&full());
    for order in [
        &["boot-task", "identity", "free-space", "time-service-running", "time-servers", "clock", "page-file"][..],
        &["domain-blob", "domain-join", "settle", "domain-member"],
        &["smb1-feature-off", "containers-feature", "hyper-v-feature", "hypervisor-launch", "settle", "firewall-on", "firewall-vxlan"],
        &["download-containerd", "unpack-containerd", "containerd-config", "registry-02", "containerd-running"],
        &["containerd-pipe", "crictl-info", "cut-logs", "credentials-00", "kubelet-service", "join", "sandbox-image", "sentinel"],
        &["containerd-service", "containerd-environment", "containerd-running", "file-00", "user-agent", "settle-before-join", "join"],
        &[
            "kubelet-service",
            "kubelet-environment",
            "join",
            "kubelet-healthy",
            "kube-proxy-config",
            "kube-proxy-running",
            "user-port",
            "user-register",
            "sentinel",
            "no-secrets",
        ],
    ] {
        let places: Vec<usize> = order.iter().map(|id| place(&plan, id)).collect();
        assert!(places.is_sorted(), "{order:?} is at {places:?}");
    }
    let Kind::Running { after, .. } = &find(&plan, "containerd-running").kind else { panic!() };
    assert!(after.iter().any(|id| id == "containerd-environment"), "containerd must be restarted with its variables");
    assert!(after.iter().any(|id| id == "unpack-containerd"), "containerd must be restarted with its new program");
    assert_eq!(plan.limits.reboots, 4, "three, and one for the steps before the join");
    assert!(find(&plan, "user-register").optional && find(&plan, "defender-exclusions").optional);
    assert_eq!((find(&plan, "user-once").attempts, find(&plan, "user-agent").seconds), (1, 600));
}

#[test]
fn settings_that_are_off_add_no_items() {
    let mut facts = facts();
    let usual = plan(&facts).items.len();
    let spec = serde_json::json!({
        "windows": {"powerPlan": "AsInImage", "windowsUpdate": "AsInImage", "defenderExclusions": false, "registryOverrides": false,
            "hardening": {"firewall": false, "smb1Off": false, "wdigestOff": false, "rdpNetworkLevelAuthentication": false, "llmnrOff": false}},
        "network": {"clockToleranceSeconds": 0, "openPorts": {"vxlan": false, "nodePorts": false, "kubeProxyHealth": false, "exporter": false}},
    });
    facts.spec = serde_json::from_value(spec).unwrap();
    let plan = plan(&facts);
    assert_eq!(usual - plan.items.len(), 20, "{}", explain(&plan));
}

#[test]
fn the_machine_chooses_the_address_of_the_node_where_nothing_else_does() {
    let flag = |change: fn(&mut BootstrapFacts)| {
        let mut facts = facts();
        change(&mut facts);
        let plan = plan(&facts);
        let flags = ["kubelet-service", "kubelet-automatic"].map(|id| match &find(&plan, id).kind {
            Kind::Service { address, .. } => address.as_ref().map(|address| format!("{}{}", address.flag, address.to)),
            kind => panic!("{kind:?}"),
        });
        assert_eq!(flags[0], flags[1]);
        flags[0].clone()
    };
    assert_eq!(flag(|_| ()), Some(format!("--node-ip={}", facts().endpoint)));
    assert_eq!(flag(|facts| facts.spec.kubelet.node_ips = vec!["10.0.0.21".into()]), None);
    assert_eq!(flag(|facts| facts.spec.kubelet.cloud_provider = Some(CloudProvider::External)), None);
}

#[test]
fn every_secret_is_only_where_it_belongs() {
    let facts = full();
    let rendered = render(&facts).unwrap();
    let payload = Payload::from_user_data(rendered.user_data.as_bytes()).unwrap();
    let shown = [rendered.plan.json().unwrap(), explain(&rendered.plan), format!("{facts:?} {rendered:?} {payload:?}")];
    for ((name, canary), places) in CANARIES.into_iter().zip([
        &["secret/domain-join"][..],
        &["secret/containerd-environment", "secret/kubelet-environment"],
        &["secret/user-00"],
        &["secret/registry-01"],
    ]) {
        let holds = |bytes: &[u8]| bytes.windows(canary.len()).any(|window| window == canary.as_bytes());
        let with: Vec<&String> = payload.files.iter().filter(|(_, bytes)| holds(bytes)).map(|(path, _)| path).collect();
        assert_eq!(with, places, "{name}");
        for text in &shown {
            assert!(!text.contains(canary), "{name}: {text}");
        }
    }
    let (password, header) = CANARY_PASSWORD;
    for (path, bytes) in &payload.files {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(password), "{path}");
        assert_eq!(text.contains(header), path == "secret/registry-02", "{path}");
    }
    for text in &shown {
        assert!(!text.contains(password) && !text.contains(header), "{text}");
    }
    // Files and services with secrets are for administrators only.
    for item in &rendered.plan.items {
        match &item.kind {
            Kind::File { source, access, .. } if source.starts_with("secret/") => assert_eq!(*access, Access::Admins, "{}", item.id),
            Kind::ServiceEnvironment { variables, .. } => assert!(matches!(variables, Variables::Secret { .. }), "{}", item.id),
            Kind::Environment { value, .. } => assert!(!value.contains("canary")),
            _ => {}
        }
    }
    // Our own secret files are below the directory that the last item removes.
    let Kind::File { path, .. } = &find(&rendered.plan, "domain-blob").kind else { panic!() };
    assert!(path.starts_with(paths::SECRET));
}

/// By default users may create directories in `C:\`: the directories that we or the kubelet use must be protected.
#[test]
fn ordinary_users_cannot_plant_files() {
    let plan = plan(&full());
    let mut known: Vec<(String, Access)> = Vec::new();
    for item in &plan.items {
        let (paths, access) = match &item.kind {
            Kind::Directory { paths, access } => (paths.clone(), *access),
            // Users choose these paths.
            Kind::File { path, access, .. } if !item.id.starts_with("file-") => (vec![path.clone()], *access),
            _ => continue,
        };
        for path in paths {
            let parts: Vec<&str> = path.split('\\').collect();
            let parents: Vec<String> = (2..parts.len()).map(|count| parts[..count].join("\\")).collect();
            let windows = parents.iter().any(|parent| [r"C:\ProgramData", r"C:\Program Files"].contains(&parent.as_str()));
            let root = parts.len() == 2;
            let over = parents.iter().rev().find_map(|parent| known.iter().find(|(path, _)| path == parent));
            assert!(windows || root || over.is_some(), "{}: {path} lies in a directory without a known owner", item.id);
            if let Some((parent, above)) = over {
                assert!(*above != Access::Inherited && access != Access::Inherited, "{}: {path} below {parent}", item.id);
                assert!(*above != Access::Admins || access == Access::Admins, "{}: {path} is less guarded than {parent}", item.id);
            }
            known.push((path, access));
        }
    }
    let access = |path: &str| known.iter().find(|(known, _)| known == path).map(|(_, access)| *access);
    assert_eq!(access(paths::KUBELET_ROOT), Some(Access::Readable));
    assert_eq!(access(paths::VOLUME_PLUGINS), Some(Access::Readable), "the kubelet runs what lies there as SYSTEM");
    assert!(paths::KUBELET_PLUGINS.iter().all(|path| access(path) == Some(Access::Admins)));
    let others: Vec<&str> =
        known.iter().filter(|(_, access)| matches!(access, Access::Shared | Access::Inherited)).map(|(path, _)| path.as_str()).collect();
    assert_eq!(others, [r"C:\tmp", paths::KUBELET_PODS, paths::KUBELET_PODS], "users may write nowhere else");
    // kubeadm empties the kubelet's directory after a failed attempt.
    let Kind::Command { undo, .. } = &find(&plan, "join").kind else { panic!() };
    assert!(undo.contains(&"reset".to_owned()));
    for (before, after) in [("kubelet-private", "kubelet-private-still"), ("kubelet-volumes", "kubelet-volumes-still")] {
        assert!(place(&plan, before) < place(&plan, "join") && place(&plan, "join") < place(&plan, after));
        assert_eq!(find(&plan, before).kind, find(&plan, after).kind);
    }
}

#[test]
fn a_proxy_without_password_is_set_everywhere() {
    let mut facts = facts();
    facts.spec.network = serde_json::from_value(serde_json::json!({"proxy": {"http": "http://proxy:3128/", "https": "http://proxy:3128"}})).unwrap();
    let plan = plan(&facts);
    let no_proxy = "127.0.0.1,localhost,169.254.169.254,.svc,.cluster.local,api.example.com,10.96.0.0/12,10.244.0.0/16";
    for (id, value) in [("http-proxy", "http://proxy:3128/"), ("https-proxy", "http://proxy:3128"), ("no-proxy", no_proxy)] {
        assert!(matches!(&find(&plan, id).kind, Kind::Environment { value: found, .. } if found == value), "{id}");
    }
    for id in ["containerd-environment", "kubelet-environment"] {
        let Kind::ServiceEnvironment { variables: Variables::Plain(lines), .. } = &find(&plan, id).kind else { panic!("{id}") };
        assert_eq!(lines[2], format!("NO_PROXY={no_proxy}"));
    }
    let json = serde_json::to_value(&find(&plan, "winhttp-proxy").kind).unwrap();
    assert_eq!((json["server"].as_str(), json["script"].as_str()), (Some("proxy:3128"), Some("winHttpProxy")));
}

#[test]
fn invalid_settings_are_refused_with_their_field() {
    type Change = fn(&mut BootstrapFacts);
    fn secret(facts: &mut BootstrapFacts, key: &str, value: &str) {
        facts.secrets.insert(SecretKeyRef { name: "windows".into(), key: key.into() }, value.into());
    }
    fn command(facts: &mut BootstrapFacts) -> &mut CommandStep {
        facts.spec.steps.before_join[0].command.as_mut().unwrap()
    }
    fn service(facts: &mut BootstrapFacts, name: &str) {
        command(facts).check = Some(StepCheck { service: Some(name.into()), ..StepCheck::default() });
    }
    let cases: [(Change, &[&str]); 25] = [
        (|f| f.secrets = Default::default(), &["spec.network.caBundleFrom.secretKeyRef", "windows/ca.pem"]),
        (|f| secret(f, "ca.pem", "nonsense"), &["spec.network.caBundleFrom", "at least one certificate"]),
        (
            |f| secret(f, "ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            &["caBundleFrom", "block 1 is not a certificate"],
        ),
        (|f| secret(f, "proxy", "proxy.example.com:3128"), &["spec.network.proxy.urlFrom.secretKeyRef", "(not shown)", "http://user:password@"]),
        (|f| f.spec.network.ca_bundle = Some("x".into()), &["spec.network.caBundle", "not both"]),
        (
            |f| f.spec.network.routes = vec![Route { destination: "10.0.0.1/8".into(), gateway: "10.0.0.1".into(), metric: 1 }],
            &["spec.network.routes[0].destination", "10.0.0.1/8"],
        ),
        (|f| f.spec.network.dynamic_ports = Some(PortRange { start: 40_000, count: 10 }), &["spec.network.dynamicPorts.count", "255"]),
        (|f| f.spec.network.reserved_ports[0].count = 70_000, &["spec.network.reservedPorts[0]", "70000"]),
        (|f| f.spec.steps.after_join[0].name = "agent".into(), &["spec.steps.afterJoin[0].name", "agent", "rename"]),
        (|f| f.spec.steps.before_join[0].registry = f.spec.steps.before_join[2].registry.clone(), &["spec.steps.beforeJoin[0]", "exactly one"]),
        (|f| f.spec.steps.before_join[0].attempts = 0, &["spec.steps.beforeJoin[0].attempts", "from 1 to 10"]),
        (
            |f| f.spec.steps.before_join[0].command.as_mut().unwrap().argv[1] = "a\nb".into(),
            &["spec.steps.beforeJoin[0].command.argv", "control characters"],
        ),
        (|f| command(f).directory = Some(r"C:\a|b".into()), &["spec.steps.beforeJoin[0].command.directory", "a|b"]),
        (|f| command(f).directory = Some(r"C:\\".into()), &["spec.steps.beforeJoin[0].command.directory", r"e.g. C:\k"]),
        (|f| command(f).directory = Some("C:\\a\0b".into()), &["spec.steps.beforeJoin[0].command.directory", r"e.g. C:\k"]),
        (
            |f| command(f).check = Some(StepCheck { file: Some(r"C:\a*".into()), ..StepCheck::default() }),
            &["spec.steps.beforeJoin[0].command.check.file"],
        ),
        (
            |f| command(f).check = Some(StepCheck { file: Some(r"C:\".into()), ..StepCheck::default() }),
            &["spec.steps.beforeJoin[0].command.check.file"],
        ),
        (
            |f| command(f).check = Some(StepCheck { file: Some("C:\\a\0b".into()), ..StepCheck::default() }),
            &["spec.steps.beforeJoin[0].command.check.file"],
        ),
        (|f| service(f, "a*"), &["spec.steps.beforeJoin[0].command.check.service", "e.g. containerd"]),
        (|f| service(f, " kubelet"), &["spec.steps.beforeJoin[0].command.check.service"]),
        (|f| service(f, r"a\b"), &["spec.steps.beforeJoin[0].command.check.service"]),
        (|f| service(f, "kube\0let"), &["spec.steps.beforeJoin[0].command.check.service"]),
        (|f| service(f, "a\nb"), &["spec.steps.beforeJoin[0].command.check.service"]),
        (
            |f| f.spec.steps.before_join[2].registry.as_mut().unwrap().key = r"HKCU:\x".into(),
            &["spec.steps.beforeJoin[2].registry.key", r"HKLM:\SOFTWARE\Example"],
        ),
        (
            |f| f.spec.steps.before_join[3].registry.as_mut().unwrap().multi_string = Some(Vec::new()),
            &["spec.steps.beforeJoin[3].registry.multiString", "at least one text"],
        ),
    ];
    for (change, said) in cases {
        let mut facts = full();
        change(&mut facts);
        let error = render(&facts).unwrap_err().to_string();
        assert!(said.iter().all(|part| error.contains(part)), "{error} lacks one of {said:?}");
        assert!(CANARIES.iter().all(|(_, canary)| !error.contains(canary)), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_settings_render_complete_items(facts in any_windows(), token in "[a-z0-9]{6}[.][a-z0-9]{16}") {
        let facts = BootstrapFacts { token: SecretString::from(token), ..facts };
        let Some(rendered) = rendered(&facts) else { return Ok(()) };
        let payload = Payload::from_user_data(rendered.user_data.as_bytes()).unwrap();
        prop_assert!(payload.files["node.json"].is_ascii());
        let ids: BTreeSet<&String> = rendered.plan.items.iter().map(|item| &item.id).collect();
        prop_assert_eq!(ids.len(), rendered.plan.items.len());
        for item in &rendered.plan.items {
            prop_assert!(item.id.len() <= 32 && item.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", item.id);
            prop_assert!((10..100).contains(&item.code.number()) && (1..=3600).contains(&item.seconds) && (1..=10).contains(&item.attempts), "{}", item.id);
            prop_assert!(item.why.link.starts_with("https://") && !item.why.reason.is_empty() && !item.why.remedy.is_empty(), "{}", item.id);
            // An item is unchanged after serialization.
            let read: Item = serde_json::from_value(serde_json::to_value(item).unwrap()).unwrap();
            prop_assert_eq!(&read.kind, &item.kind);
        }
        for (_, canary) in CANARIES {
            prop_assert!(!rendered.plan.json().unwrap().contains(canary));
        }
    }
}
