//! What the model of a disk makes of a plan: whole, killed anywhere, and with something missing.

use proptest::prelude::*;

use super::*;
use crate::bootstrap::plan::{Plan, When};
use crate::bootstrap::sample::{any_windows, facts, full, rendered};
use crate::bootstrap::{BootstrapFacts, render};
use crate::vm::FailureCode;

fn plan(facts: &BootstrapFacts) -> Plan {
    render(facts).unwrap().plan
}

/// Where a runner is killed: before it does its nth item, or after that and before it notes it. Restarts count.
#[derive(Clone, Copy, Debug)]
enum Kill {
    Before(usize),
    BeforeTheMark(usize),
    Never,
}

/// Carries out the rest of a plan until the kill. Gives how many items were done, and whether the plan is.
fn carry_out(disk: &mut Disk, plan: &Plan, kill: Kill) -> (usize, bool) {
    let mut done = 0;
    for item in &plan.items {
        while !disk.finished(item) {
            if matches!(kill, Kill::Before(at) if at == done) {
                return (done, false);
            }
            let mut restarted = false;
            match disk.act(item) {
                Act::Done => {}
                Act::Restart => {
                    disk.start();
                    restarted = true;
                }
                Act::Join { configuration } => {
                    assert_eq!(configuration, paths::JOIN_CONFIG);
                    assert!(disk.holds(&Check::Pipe(paths::CRI_PIPE.into())), "the kubelet needs containerd");
                    assert!(disk.has_file(paths::KUBELET_PATCH));
                    disk.joined();
                }
                Act::Never(reason) => panic!("{}: {reason}", item.id),
            }
            if matches!(kill, Kill::BeforeTheMark(at) if at == done) {
                return (done, false);
            }
            done += 1;
            if !restarted {
                disk.finish(item);
            }
        }
    }
    (done, true)
}

fn machine(facts: &BootstrapFacts) -> Disk {
    let mut disk = Disk::of_image("win-7k2fq", facts.spec.windows_release.build());
    if let Some(plugin) = facts.spec.windows.gmsa.as_ref().and_then(|gmsa| gmsa.credential_plugin.as_ref()) {
        disk.files.insert(lower(&plugin.library), String::new());
    }
    if let Some(provider) = &facts.spec.kubelet.image_credential_provider {
        for program in &provider.providers {
            disk.files.insert(lower(&format!(r"{}\{}.exe", provider.directory, program.name)), String::new());
        }
    }
    // The program of the users' own step is in their image.
    disk.files.insert(lower(r"C:\k\register.exe"), String::new());
    disk.start();
    disk
}

/// The disk as it is read again by another process, after another start of Windows if the power went.
fn again(disk: &Disk, power: bool) -> Disk {
    let mut disk: Disk = serde_json::from_slice(&serde_json::to_vec(disk).unwrap()).unwrap();
    if power {
        disk.start();
    }
    disk
}

/// Kills at that place, goes on, and compares with a machine that nobody killed.
fn judge(facts: &BootstrapFacts, plan: &Plan, whole: &Disk, kill: Kill, power: bool) {
    let mut disk = machine(facts);
    carry_out(&mut disk, plan, kill);
    let mut disk = again(&disk, power);
    assert!(carry_out(&mut disk, plan, Kill::Never).1, "{kill:?} {power}");
    for (id, runs) in &disk.runs {
        assert_eq!(*runs, 1, "{kill:?} {power}: {id} ran more than once");
    }
    // A cut of the power is one more start, or one instead of that which the plan asks for.
    disk.boot = whole.boot;
    assert_eq!(disk, *whole, "{kill:?} {power}");
}

#[test]
fn the_rendered_plan_makes_a_node_and_leaves_no_secret() {
    for (facts, boots) in [(facts(), 2), (full(), 3)] {
        let (plan, mut disk) = (plan(&facts), machine(&facts));
        assert!(carry_out(&mut disk, &plan, Kill::Never).1);
        assert_eq!(disk.boot, boots, "one restart for everything of Windows, one for the user's steps");
        assert!(disk.has_file(paths::SENTINEL) && disk.has_file(paths::KUBELET_KUBECONFIG));
        assert!(!disk.has_file(paths::BOOTSTRAP_KUBECONFIG));
        assert!(!disk.files.keys().any(|path| path.starts_with(&lower(paths::SECRET))), "{:?}", disk.files.keys());
        assert_eq!(disk.flag("kubelet", "hostname-override"), Some("win-7k2fq"));
        disk.start();
        assert!(disk.holds(&Check::Url("http://127.0.0.1:10248/healthz".into())), "the kubelet starts with Windows");
        assert!(plan.items.iter().all(|item| disk.finished(item)), "nothing is done twice");
    }
}

#[test]
fn a_kill_anywhere_leads_to_the_same_end_and_runs_nothing_twice() {
    for facts in [facts(), full()] {
        let plan = plan(&facts);
        let mut whole = machine(&facts);
        // Those for a program that the image need not have.
        let skipped = plan.items.iter().filter(|item| whole.finished(item)).count();
        let (items, _) = carry_out(&mut whole, &plan, Kill::Never);
        assert!(items + skipped > plan.items.len() && skipped < 3, "every item and each restart is a place to be killed at");
        for at in 0..items {
            for power in [false, true] {
                judge(&facts, &plan, &whole, Kill::Before(at), power);
                judge(&facts, &plan, &whole, Kill::BeforeTheMark(at), power);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_plan_ends_the_same_wherever_it_is_killed(facts in any_windows(), place in any::<prop::sample::Index>(), power in any::<bool>()) {
        let Some(plan) = rendered(&facts).map(|rendered| rendered.plan) else { return Ok(()) };
        let mut whole = machine(&facts);
        let (items, done) = carry_out(&mut whole, &plan, Kill::Never);
        prop_assert!(done && !whole.files.keys().any(|path| path.starts_with(&lower(paths::SECRET))));
        prop_assert!(whole.boot <= 1 + plan.limits.reboots, "{} starts", whole.boot);
        judge(&facts, &plan, &whole, Kill::Before(place.index(items)), power);
        judge(&facts, &plan, &whole, Kill::BeforeTheMark(place.index(items)), power);
    }
}

#[test]
fn another_release_of_windows_is_refused() {
    let facts = facts();
    let mut disk = Disk::of_image("win-7k2fq", 26_100);
    let identity = plan(&facts).items.into_iter().find(|item| item.id == "identity").unwrap();
    assert!(matches!(disk.act(&identity), Act::Never(reason) if reason.contains("20348") && reason.contains("26100")));
}

#[test]
fn what_is_missing_is_named() {
    let item = |kind| Item {
        id: "x".into(),
        kind,
        code: FailureCode::UserStep,
        seconds: 1,
        attempts: 1,
        unless: None,
        optional: false,
        why: Default::default(),
    };
    let mut disk = machine(&facts());
    for (kind, named) in [
        (Kind::Running { name: "containerd".into(), after: vec![] }, "containerd"),
        (Kind::Wait { check: Check::File(r"C:\none.exe".into()) }, "none.exe"),
        (
            Kind::Command {
                argv: vec![paths::KUBEADM.into(), "join".into(), "--config".into(), r"C:\none.yaml".into()],
                directory: String::new(),
                check: Some(Check::File(paths::KUBELET_KUBECONFIG.into())),
                exit_codes: Default::default(),
                undo: vec![],
            },
            "none.yaml",
        ),
    ] {
        let item = item(kind);
        assert!(matches!(disk.act(&item), Act::Never(reason) if reason.contains(named)), "{named}");
    }
    assert_eq!(disk.act(&item(Kind::Reboot { when: When::Pending })), Act::Done, "nothing asks for a restart");
    assert_eq!(disk.computer_name(), "win-7k2fq");
}
