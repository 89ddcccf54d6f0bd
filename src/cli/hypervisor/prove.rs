//! `capw hypervisor prove`: creates VMs on the hypervisors of a file, interrupts and removes them, and reports whether every rule was kept.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::finding::{Finding, table};
use super::objects::Objects;
use crate::api::decode::from_value;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::{WindowsMachine, WindowsMachineSpec};
use crate::cli::output::say;
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::hypervisor::prove::report::{About, Section, markdown};
use crate::hypervisor::prove::{self, Bench, LENGTH, Ledger, Run};
use crate::kinds::machine::decide::step::vm_spec;
use crate::operator;
use crate::telemetry::build::BUILD;
use crate::vm::VmSpec;

/// Flags of `capw hypervisor prove`.
#[derive(Args, Debug)]
#[command(
    after_help = "Makes one VM at a time, two for one of the cases, named prove-RUN-1 and so on, and removes what it makes, also after Ctrl-C. \
    Exit code 0: all cases passed that apply. 1: one did not, and the table says which."
)]
pub(super) struct Prove {
    /// Files with WindowsHypervisors, and with the Secrets, WindowsMachines and WindowsMachineTemplates that are meant for them; - is standard input.
    #[arg(short = 'f', long = "filename", required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The image of the VMs, instead of that of the machines in the files.
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
    /// Write a report into this file, as Markdown.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The time that each case has, and the removal of what it has made, e.g. 30m where images are copied.
    #[arg(long, value_name = "TIME", default_value = "10m")]
    timeout: SignedDuration,
    /// Prove nothing, and remove what the run of that name has left.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["image", "report"])]
    remove: Option<Run>,
    /// Directory in which simulated hypervisors keep their VMs.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/capw/simulated")]
    simulated_state: PathBuf,
}

/// The two ways to stop: after the running case, and at once.
struct Stops {
    after_cleaning: CancellationToken,
    at_once: CancellationToken,
}

/// A run, and what it runs with.
#[derive(Clone, Copy)]
struct Running<'a> {
    run: &'a Run,
    objects: &'a Objects,
    stops: &'a Stops,
}

impl Prove {
    /// Returns the table, and whether all cases passed.
    pub fn run(&self) -> Result<(String, bool), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("a runtime: {e}"))?;
        let answer = runtime.block_on(async {
            let [after_cleaning, at_once] = operator::stop_on_signals().map_err(|e| e.to_string())?;
            let told = after_cleaning.clone();
            tokio::spawn(async move {
                told.cancelled().await;
                say("stopping: what was made is removed; Ctrl-C again ends at once and leaves it");
            });
            self.answer(&Stops { after_cleaning, at_once }).await
        });
        // A running call is not awaited.
        runtime.shutdown_background();
        answer
    }

    async fn answer(&self, stops: &Stops) -> Result<(String, bool), String> {
        let objects = Objects::read(&self.files)?;
        match &self.remove {
            Some(run) => self.remove(Running { run, objects: &objects, stops }).await,
            None => self.prove(&objects, stops).await,
        }
    }

    async fn prove(&self, objects: &Objects, stops: &Stops) -> Result<(String, bool), String> {
        let machines = objects.hypervisors.iter().map(|hypervisor| Ok((hypervisor, self.machines(objects, hypervisor)?)));
        let machines = machines.collect::<Result<Vec<_>, String>>()?;
        let unwritten = |path: &Path, e| format!("--report {}: {e}", path.display());
        // Errors of the report file must be reported before the first VM is created.
        if let Some(path) = &self.report {
            File::create(path).map_err(|e| unwritten(path, e))?;
        }
        let run: Run = operator::random_text(LENGTH).parse()?;
        say(&format!("run {run}: its VMs are named prove-{run}-…, with the mark of the cluster {}; Ctrl-C removes them and ends", run.cluster()));
        let running = Running { run: &run, objects, stops };
        let mut sections = Vec::new();
        for (hypervisor, machines) in machines {
            for (machine, spec) in machines {
                say(&format!("{}, {machine}", name(hypervisor)));
                let image = spec.image.clone();
                let proven = async |bench: &Bench<'_>| (prove::prove(bench).await, bench.endpoint.get().cloned());
                let (outcomes, endpoint) = self.at(running, hypervisor, spec, proven).await?;
                let driver = hypervisor.spec.driver().unwrap_or("none");
                sections.push(Section { hypervisor: name(hypervisor), driver, endpoint, machine, image, outcomes });
            }
        }
        if let Some(path) = &self.report {
            let about = About { run: &run, version: format!("{} ({})", BUILD.version, BUILD.revision), now: operator::now() };
            fs::write(path, markdown(&about, &sections)).map_err(|e| unwritten(path, e))?;
        }
        let findings: Vec<Finding> = sections.iter().flat_map(findings).collect();
        let is_left = sections.iter().flat_map(|section| &section.outcomes).any(|outcome| outcome.is_left);
        let remedy = if is_left { format!("{}\n", run.remedy()) } else { String::new() };
        Ok((table(&findings) + &remedy, sections.iter().all(Section::is_good)))
    }

    async fn remove(&self, running: Running<'_>) -> Result<(String, bool), String> {
        let mut findings = Vec::new();
        for hypervisor in &running.objects.hypervisors {
            let removed = async |bench: &Bench<'_>| prove::remove(bench).await;
            let left = self.at(running, hypervisor, spec_of("removal", &machine_of("none")?)?, removed).await?;
            let ok = left.is_none();
            let message = left.unwrap_or_else(|| format!("nothing is left of run {}", running.run));
            findings.push(Finding { hypervisor: name(hypervisor), check: "removal".into(), ok, reason: None, message });
        }
        Ok((table(&findings), findings.iter().all(|finding| finding.ok)))
    }

    /// Runs work on one hypervisor, unless the user stops at once.
    async fn at<T>(
        &self,
        Running { run, objects, stops }: Running<'_>,
        hypervisor: &WindowsHypervisor,
        spec: VmSpec,
        work: impl AsyncFnOnce(&Bench<'_>) -> T,
    ) -> Result<T, String> {
        let (login, ledger) = (objects.login(hypervisor), Ledger::default());
        let settings = DriverSettings::uncounted(self.simulated_state.clone(), 32, Arc::new(operator::now));
        // Nothing is shared with earlier connections.
        let connect = || Drivers::new(settings.clone()).connect(hypervisor, &login);
        let bench = Bench {
            run,
            connect: &connect,
            spec,
            limit: self.limit()?,
            ledger: &ledger,
            stop: &stops.after_cleaning,
            progress: &say,
            endpoint: OnceLock::new(),
        };
        tokio::select! {
            done = work(&bench) => Ok(done),
            () = stops.at_once.cancelled() => Err(format!("ended at once. {}. {}", prove::left(&ledger.keys()), run.remedy())),
        }
    }

    /// The machines to prove with, and the kind and name of the object that requests each.
    fn machines(&self, objects: &Objects, hypervisor: &WindowsHypervisor) -> Result<Vec<(String, VmSpec)>, String> {
        let mut asked: Vec<(String, WindowsMachineSpec)> = objects.machines_of(hypervisor).cloned().collect();
        match &self.image {
            Some(image) if asked.is_empty() => asked.push(("--image".into(), machine_of(image)?)),
            Some(image) => asked.iter_mut().for_each(|(_, spec)| spec.image.clone_from(image)),
            None if asked.is_empty() => {
                let name = name(hypervisor);
                return Err(format!(
                    "no WindowsMachine or WindowsMachineTemplate of the files is for WindowsHypervisor {name}: give the file that holds one with -f, or name an image with --image"
                ));
            }
            None => {}
        }
        asked.into_iter().map(|(of, spec)| Ok((of.clone(), spec_of(&of, &spec)?))).collect()
    }

    fn limit(&self) -> Result<Duration, String> {
        Duration::try_from(self.timeout).ok().filter(|limit| !limit.is_zero()).ok_or_else(|| "--timeout must be longer than 0s, e.g. 10m".into())
    }
}

fn name(hypervisor: &WindowsHypervisor) -> String {
    hypervisor.metadata.name.clone().unwrap_or_default()
}

/// Returns a machine with this image and default settings.
fn machine_of(image: &str) -> Result<WindowsMachineSpec, String> {
    from_value(&json!({ "image": image })).map_err(|e| format!("--image {image}: {e}"))
}

fn spec_of(of: &str, spec: &WindowsMachineSpec) -> Result<VmSpec, String> {
    vm_spec(&WindowsMachine::new("prove", spec.clone())).map_err(|e| format!("{of}: {e}"))
}

fn findings(section: &Section) -> impl Iterator<Item = Finding> {
    section.outcomes.iter().map(|outcome| Finding {
        hypervisor: section.hypervisor.clone(),
        check: format!("{}: {}", section.machine, outcome.case.name),
        ok: outcome.is_good(),
        reason: Some(outcome.verdict.as_str()),
        message: outcome.told(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const HYPERVISOR: &str =
        "apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1\nkind: WindowsHypervisor\nmetadata:\n  name: lab\nspec:\n  simulated: {}\n";
    const TEMPLATE: &str = "---\napiVersion: infrastructure.cluster.x-k8s.io/v1alpha1\nkind: WindowsMachineTemplate\nmetadata:\n  name: windows\nspec:\n  template:\n    spec:\n      image: windows-server-2022\n";

    struct Lab(tempfile::TempDir);

    impl Lab {
        fn new(yaml: &str) -> Self {
            let lab = Self(tempfile::tempdir().unwrap());
            fs::write(lab.path("all.yaml"), yaml).unwrap();
            lab
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn prove(&self) -> Prove {
            let timeout = SignedDuration::from_mins(1);
            Prove { files: vec![self.path("all.yaml")], image: None, report: None, timeout, remove: None, simulated_state: self.path("state") }
        }

        /// The number of VMs in the data centre.
        fn vms(&self) -> usize {
            fs::read_dir(self.path("state").join(".lab")).map_or(0, |all| all.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count())
        }
    }

    fn stops() -> Stops {
        Stops { after_cleaning: CancellationToken::new(), at_once: CancellationToken::new() }
    }

    #[tokio::test]
    async fn it_ends_with_a_table_and_a_report_and_without_a_vm() {
        let lab = Lab::new(&format!("{HYPERVISOR}{TEMPLATE}"));
        let report = lab.path("report");
        let prove = Prove { report: Some(report.clone()), ..lab.prove() };
        let (text, is_good) = prove.answer(&stops()).await.unwrap();
        assert!(is_good && lab.vms() == 0, "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("lab  WindowsMachineTemplate windows: ")).count(), prove::CASES.len(), "{text}");
        let report = fs::read_to_string(report).unwrap();
        for part in ["All cases passed", BUILD.version, "- Driver: simulated", "- Hypervisor: simulated 1.0", "| 4, 5 | ok |"] {
            assert!(report.contains(part), "{part} is not in:\n{report}");
        }
    }

    #[tokio::test]
    async fn an_image_of_the_command_line_is_proven_with_or_without_a_machine_in_the_files() {
        for (yaml, of) in [(HYPERVISOR.to_owned(), "--image"), (format!("{HYPERVISOR}{TEMPLATE}"), "WindowsMachineTemplate windows")] {
            let lab = Lab::new(&yaml);
            let prove = Prove { image: Some("windows-3.11".into()), ..lab.prove() };
            let (text, is_good) = prove.answer(&stops()).await.unwrap();
            let line = text.lines().find(|line| line.contains("FAILED")).unwrap();
            assert!(!is_good && line.contains(of) && line.contains("windows-3.11") && line.contains("correct spec.image"), "{text}");
            assert_eq!(text.lines().filter(|line| line.contains("not run: 0 s, it needs: what the machine asks for is there")).count(), 11, "{text}");
        }
    }

    #[tokio::test]
    async fn what_cannot_be_begun_is_told_with_the_flag() {
        let lab = Lab::new(HYPERVISOR);
        let nowhere = Prove { image: Some("windows-server-2022".into()), report: Some(lab.path("no/report")), ..lab.prove() };
        let never = Prove { image: Some("windows-server-2022".into()), timeout: SignedDuration::ZERO, ..lab.prove() };
        for (prove, flag) in [(lab.prove(), "--image"), (nowhere, "--report"), (never, "--timeout")] {
            let error = prove.answer(&stops()).await.unwrap_err();
            assert!(error.contains(flag), "{error}");
        }
    }

    #[tokio::test]
    async fn an_end_at_once_names_what_is_left_and_the_removal_finds_it() {
        let slow = HYPERVISOR.replace("{}", "{delays: {createMilliseconds: 3600000}}");
        let lab = Lab::new(&format!("{slow}{TEMPLATE}"));
        let (prove, stops) = (lab.prove(), stops());
        let ended = async {
            while lab.vms() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            stops.at_once.cancel();
        };
        let (answer, ()) = tokio::join!(prove.answer(&stops), ended);
        let error = answer.unwrap_err();
        let run: BTreeSet<&str> = error.split("--remove ").skip(1).map(|rest| &rest[..LENGTH]).collect();
        let run: Run = run.first().unwrap().parse().unwrap();
        assert!(error.contains(&format!("prove-{run}-3 (")) && lab.vms() == 1, "{error}");
        let removal = Prove { remove: Some(run.clone()), ..lab.prove() };
        let (text, is_good) = removal.answer(&self::stops()).await.unwrap();
        assert!(is_good && text.contains(&format!("nothing is left of run {run}")) && lab.vms() == 0, "{text}");
    }
}
