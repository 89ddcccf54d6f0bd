//! The model with a whole plan, with a kill anywhere, and with something missing.

use std::io;

use proptest::prelude::*;

use super::disk::{Act, Disk};
use super::error::JoinError;
use super::image::Image;
use super::journal::Journal;
use super::model::{Kept, Model, World};
use super::runner::Machine;
use crate::bootstrap::plan::{Check, Item, Kind, Plan, When};
use crate::bootstrap::sample::{any_windows, facts, full, rendered};
use crate::bootstrap::{BootstrapFacts, paths, render};
use crate::vm::{FailureCode, GuestReport};

fn plan(facts: &BootstrapFacts) -> Plan {
    render(facts).unwrap().plan
}

/// A kill during the runner's nth write. The kill loses all changes since the write before, or only the record of these changes.
#[derive(Clone, Copy, Debug)]
enum Kill {
    Undone(usize),
    Forgotten(usize),
    Never,
}

impl Kill {
    /// The write before which the kill happens.
    fn at(self) -> Option<usize> {
        match self {
            Self::Undone(at) | Self::Forgotten(at) => Some(at),
            Self::Never => None,
        }
    }
}

/// A cluster that lets everyone join, and storage that works until the kill.
struct Place {
    kill: Kill,
    writes: usize,
    /// The state at the last write before the kill.
    kept: Kept,
    console: String,
}

impl World for Place {
    fn broken(&self, _item: &Item) -> Option<String> {
        None
    }

    async fn join(&mut self, disk: &Disk, configuration: &str) -> Result<(), JoinError> {
        assert_eq!(configuration, paths::JOIN_CONFIG);
        assert!(disk.holds(&Check::Pipe(paths::CRI_PIPE.into())), "the kubelet needs containerd");
        assert!(disk.has_file(paths::KUBELET_PATCH));
        Ok(())
    }

    async fn reset(&mut self) {}

    async fn say(&mut self, lines: String) {
        self.console += &lines;
    }

    async fn keep(&mut self, kept: &Kept) -> io::Result<()> {
        if self.kill.at() == Some(self.writes) {
            return Err(io::Error::other("killed"));
        }
        self.writes += 1;
        if self.kill.at() == Some(self.writes) {
            self.kept = kept.clone();
        }
        Ok(())
    }
}

/// Carries out the rest of the plan until the kill. Returns the remaining state and the number of writes.
async fn carry_out(kept: Kept, plan: &Plan, kill: Kill) -> (Kept, usize) {
    let place = Place { kill, writes: 0, kept: kept.clone(), console: String::new() };
    let mut model = Model::new(kept, place);
    let ended = model.carry_out(plan).await;
    assert_eq!(ended.is_ok(), model.kept.journal.finished() && matches!(kill, Kill::Never), "{}", model.world.console);
    let left = match kill {
        Kill::Undone(_) => model.world.kept,
        Kill::Forgotten(_) => Kept { journal: model.world.kept.journal, ..model.kept },
        Kill::Never => model.kept,
    };
    (left, model.world.writes)
}

fn image(facts: &BootstrapFacts) -> Image {
    let mut image = Image { build: facts.spec.windows_release.build(), ..Image::named("") };
    image.programs.extend(facts.spec.windows.gmsa.as_ref().and_then(|gmsa| gmsa.credential_plugin.as_ref()).map(|plugin| plugin.library.clone()));
    if let Some(provider) = &facts.spec.kubelet.image_credential_provider {
        image.programs.extend(provider.providers.iter().map(|program| format!(r"{}\{}.exe", provider.directory, program.name)));
    }
    // The program of the user's own step is in the user's image.
    image.programs.push(r"C:\k\register.exe".into());
    image
}

fn machine(facts: &BootstrapFacts) -> Kept {
    started(Kept { disk: Disk::of_image(&image(facts), "win-7k2fq"), ..Kept::default() })
}

fn started(kept: Kept) -> Kept {
    let mut model = Model::new(kept, Place { kill: Kill::Never, writes: 0, kept: Kept::default(), console: String::new() });
    model.start();
    model.kept
}

/// Another process reads the machine again, after another start of Windows if the power went off.
fn again(kept: &Kept, power: bool) -> Kept {
    let kept: Kept = serde_json::from_slice(&serde_json::to_vec(kept).unwrap()).unwrap();
    if power { started(kept) } else { kept }
}

/// Kills at that write, continues, and compares with a machine that was not killed.
async fn judge(facts: &BootstrapFacts, plan: &Plan, whole: &Kept, kill: Kill, power: bool) {
    judge_after(facts, plan, whole, kill, power, |_| ()).await;
}

/// As [`judge`], after a fault has damaged the journal.
async fn judge_after(facts: &BootstrapFacts, plan: &Plan, whole: &Kept, kill: Kill, power: bool, hits: impl Fn(&mut Journal)) {
    let (mut killed, _) = carry_out(machine(facts), plan, kill).await;
    hits(&mut killed.journal);
    let (kept, _) = carry_out(again(&killed, power), plan, Kill::Never).await;
    for (id, runs) in kept.disk.runs() {
        assert_eq!(*runs, 1, "{kill:?} {power}: {id} ran more than once");
    }
    assert_eq!(kept.disk.without_moments(), whole.disk.without_moments(), "{kill:?} {power}");
}

#[tokio::test(start_paused = true)]
async fn the_rendered_plan_makes_a_node_and_leaves_no_secret() {
    for (facts, boots) in [(facts(), 2), (full(), 3)] {
        let plan = plan(&facts);
        let (kept, _) = carry_out(machine(&facts), &plan, Kill::Never).await;
        assert_eq!(kept.journal.boot, boots, "one restart for everything of Windows, one for the user's steps");
        assert!(kept.disk.has_file(paths::SENTINEL) && kept.disk.has_file(paths::KUBELET_KUBECONFIG));
        assert!(!kept.disk.has_file(paths::BOOTSTRAP_KUBECONFIG));
        assert!(!has_secret(&kept.disk), "{:?}", kept.disk);
        assert_eq!(kept.disk.flag("kubelet", "hostname-override"), Some("win-7k2fq"));
        let kept = started(kept);
        assert!(kept.disk.holds(&Check::Url("http://127.0.0.1:10248/healthz".into())), "the kubelet starts with Windows");
    }
}

fn has_secret(disk: &Disk) -> bool {
    !disk.is_true(&item(Kind::Absent { paths: vec![paths::SECRET.into()], tasks: vec![] }), &Journal::default())
}

#[tokio::test(start_paused = true)]
async fn a_kill_anywhere_leads_to_the_same_end_and_runs_nothing_twice() {
    for facts in [facts(), full()] {
        let plan = plan(&facts);
        let (whole, writes) = carry_out(machine(&facts), &plan, Kill::Never).await;
        assert!(
            writes > plan.items.len() - 3,
            "every item and each restart is a place to be killed at, but those for programs that images need not have"
        );
        // The plan is finished from the last write but one on.
        for at in 0..writes - 2 {
            for power in [false, true] {
                judge(&facts, &plan, &whole, Kill::Undone(at), power).await;
                judge(&facts, &plan, &whole, Kill::Forgotten(at), power).await;
            }
        }
    }
}

/// A file of zeros is no state: the plan begins again on a machine where much is true already. The same holds for lost markers alone.
#[tokio::test(start_paused = true)]
async fn a_state_that_is_lost_anywhere_leads_to_the_same_end() {
    for facts in [facts(), full()] {
        let plan = plan(&facts);
        let (whole, writes) = carry_out(machine(&facts), &plan, Kill::Never).await;
        for at in 0..writes - 2 {
            for power in [false, true] {
                judge_after(&facts, &plan, &whole, Kill::Forgotten(at), power, |journal| *journal = Journal::default()).await;
                judge_after(&facts, &plan, &whole, Kill::Forgotten(at), power, Journal::lose_markers).await;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_plan_ends_the_same_wherever_it_is_killed(facts in any_windows(), place in any::<prop::sample::Index>(), power in any::<bool>()) {
        let Some(plan) = rendered(&facts).map(|rendered| rendered.plan) else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (whole, writes) = carry_out(machine(&facts), &plan, Kill::Never).await;
            assert!(!has_secret(&whole.disk));
            assert!(whole.journal.boot <= 1 + plan.limits.reboots, "{} starts", whole.journal.boot);
            let at = place.index(writes - 2);
            judge(&facts, &plan, &whole, Kill::Undone(at), power).await;
            judge(&facts, &plan, &whole, Kill::Forgotten(at), power).await;
        });
    }
}

fn item(kind: Kind) -> Item {
    Item { id: "x".into(), kind, code: FailureCode::UserStep, seconds: 1, attempts: 1, unless: None, optional: false, why: Default::default() }
}

fn model(kept: Kept) -> Model<Place> {
    Model::new(kept, Place { kill: Kill::Never, writes: 0, kept: Kept::default(), console: String::new() })
}

#[tokio::test(start_paused = true)]
async fn another_release_of_windows_is_refused() {
    let facts = facts();
    let image = Image { build: 26_100, ..Image::named("") };
    let mut model = model(Kept { disk: Disk::of_image(&image, "win-7k2fq"), ..Kept::default() });
    model.carry_out(&plan(&facts)).await.unwrap();
    let said: Vec<GuestReport> = model.world.console.lines().map(|line| GuestReport::parse(line).unwrap()).collect();
    let last = said.last().unwrap();
    assert_eq!((last.item.as_str(), last.state.as_str(), last.subject().0, last.code), ("plan", "failed", "identity", 20));
    assert!(last.message.contains("20348") && last.message.contains("26100"), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_named() {
    let mut model = model(machine(&facts()));
    for (kind, named) in [
        (Kind::Running { name: "containerd".into(), after: vec![] }, "containerd"),
        (Kind::Wait { check: Check::File(r"C:\none.exe".into()) }, r"expected file C:\none.exe, found none within 1 seconds"),
        (
            Kind::Command {
                argv: vec![paths::KUBEADM.into(), "join".into(), "--config".into(), r"C:\none.yaml".into()],
                raw: None,
                directory: String::new(),
                check: Some(Check::File(paths::KUBELET_KUBECONFIG.into())),
                exit_codes: Default::default(),
                undo: vec![],
            },
            "none.yaml",
        ),
    ] {
        let failure = model.act(&item(kind)).await.unwrap_err();
        assert!(failure.message.contains(named), "{failure:?}");
    }
    assert!(model.is_true(&item(Kind::Reboot { when: When::Pending })).await.unwrap(), "nothing asks for a restart");
    assert_eq!(model.kept.disk.computer_name(), "win-7k2fq");
    assert_eq!(model.kept.disk.act(&item(Kind::Environment { name: "A".into(), value: "b".into() }), 1), Act::Done);
}
