//! `capw hypervisor check | prove`. `check`, in this file, runs the controllers' checks before the creation of a VM for the hypervisors of a file;
//! it changes nothing.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;

use super::documents::{at, documents, secret, text, typed};
use super::output::print;
use super::prove::Prove;
use crate::api::condition::Reason;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::{WindowsMachine, WindowsMachineSpec, WindowsMachineTemplate};
use crate::compat::{self, Verdict};
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::hypervisor::login::Login;
use crate::hypervisor::{Driver, DriverError, ImageFirmware, Wanted};
use crate::kinds::hypervisor::decide::listing::{distrust, reason};
use crate::kinds::machine::decide::driver_failure;
use crate::kinds::machine::decide::step::vm_spec;
use crate::operator;
use crate::vm::SeedKind;

/// Flags of `capw hypervisor`.
#[derive(Args, Debug)]
pub struct Hypervisor {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check whether each WindowsHypervisor of a file has what the machines of the file need.
    Check(Check),
    /// Create VMs on each WindowsHypervisor of a file, interrupt and remove them, and report whether every rule was kept.
    Prove(Prove),
}

/// Flags of `capw hypervisor check`.
#[derive(Args, Debug)]
#[command(after_help = "Exit code 0: nothing is missing. 1: something is, and the table says what to do.")]
struct Check {
    /// Files with WindowsHypervisors, and with the Secrets, WindowsMachines and WindowsMachineTemplates that are meant for them; - is standard input.
    #[arg(short = 'f', long = "filename", required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Directory in which simulated hypervisors keep their VMs.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/capw/simulated")]
    simulated_state: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For machines.
    Json,
}

/// The result of one check.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Finding {
    pub hypervisor: String,
    /// The name of the check.
    pub check: String,
    pub ok: bool,
    /// The reason that the object's condition would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    pub message: String,
}

impl Hypervisor {
    pub fn main(self) -> Result<ExitCode, String> {
        let (text, is_good) = match self.command {
            Command::Check(check) => check.run()?,
            Command::Prove(prove) => prove.run()?,
        };
        print(text)?;
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Check {
    /// Returns the output, and whether all checks passed.
    fn run(&self) -> Result<(String, bool), String> {
        let objects = Objects::read(&self.files)?;
        let drivers = Drivers::new(DriverSettings::uncounted(self.simulated_state.clone(), 4, Arc::new(operator::now)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("a runtime: {e}"))?;
        let findings = runtime.block_on(async {
            let mut findings = Vec::new();
            for hypervisor in &objects.hypervisors {
                let mut asked = Asked { hypervisor, findings: &mut findings };
                if let Ok(driver) = drivers.connect(hypervisor, &objects.login(hypervisor)).map_err(|error| asked.failed("settings", &error)) {
                    asked.ask(&*driver, objects.machines_of(hypervisor)).await;
                }
            }
            findings
        });
        let is_good = findings.iter().all(|finding| finding.ok);
        let text = match self.output {
            Output::Json => serde_json::to_string_pretty(&findings).map_err(|e| e.to_string())? + "\n",
            Output::Table => table(&findings),
        };
        Ok((text, is_good))
    }
}

/// The relevant objects of the files.
#[derive(Default)]
pub(super) struct Objects {
    pub hypervisors: Vec<WindowsHypervisor>,
    secrets: Vec<Secret>,
    /// The machines with their kind and name.
    machines: Vec<(String, WindowsMachineSpec)>,
}

impl Objects {
    pub fn read(files: &[PathBuf]) -> Result<Self, String> {
        let mut objects = Self::default();
        for path in files {
            for (number, document) in documents(&text(path)?).iter().enumerate() {
                let origin = format!("{}: document {}", path.display(), number + 1);
                let value: serde_json::Value = serde_saphyr::from_str(document).map_err(|e| format!("{origin}: {e}"))?;
                let (kind, name) = (at(&value, "kind").unwrap_or_default(), at(&value, "metadata.name").unwrap_or("unnamed"));
                let (origin, named) = (format!("{origin} ({kind} {name})"), format!("{kind} {name}"));
                match kind {
                    "WindowsHypervisor" => objects.hypervisors.push(typed(&origin, &value)?),
                    "WindowsMachine" => objects.machines.push((named, typed::<WindowsMachine>(&origin, &value)?.spec)),
                    "WindowsMachineTemplate" => {
                        let spec = typed::<WindowsMachineTemplate>(&origin, &value)?.spec.template.spec;
                        objects.machines.push((named, spec));
                    }
                    "Secret" => objects.secrets.push(secret(&origin, &value)?),
                    _ => {}
                }
            }
        }
        if objects.hypervisors.is_empty() {
            return Err("no document is a WindowsHypervisor: give the file that holds it with -f".into());
        }
        Ok(objects)
    }

    /// The credentials, if the Secret is among the documents.
    pub fn login(&self, hypervisor: &WindowsHypervisor) -> Login {
        let named = hypervisor.spec.credentials_ref.as_ref().map(|reference| reference.name.as_str());
        let found = self.secrets.iter().find(|secret| named.is_some() && secret.metadata.name.as_deref() == named);
        let Some(secret) = found else { return Login::default() };
        let data = secret.data.clone().unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        let plain = secret.string_data.clone().unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        Login::new(named.unwrap_or_default().to_owned(), data.chain(plain).collect())
    }

    /// The machines that may be created on a hypervisor, with their kind and name.
    pub fn machines_of(&self, hypervisor: &WindowsHypervisor) -> impl Iterator<Item = &(String, WindowsMachineSpec)> {
        let name = hypervisor.metadata.name.as_deref().unwrap_or_default();
        self.machines.iter().filter(move |(_, spec)| spec.hypervisor_ref.as_ref().is_none_or(|reference| reference.name == name))
    }
}

/// The checks of one hypervisor.
struct Asked<'a> {
    hypervisor: &'a WindowsHypervisor,
    findings: &'a mut Vec<Finding>,
}

impl Asked<'_> {
    async fn ask<'m>(&mut self, driver: &dyn Driver, machines: impl Iterator<Item = &'m (String, WindowsMachineSpec)>) {
        let endpoint = match driver.describe().await {
            Ok(endpoint) => endpoint,
            Err(error) => return self.failed("login", &error),
        };
        self.found("login", endpoint.version.clone());
        self.version(&endpoint.version);
        match distrust(self.hypervisor, &endpoint.id, &endpoint.lacks) {
            Some(error) => self.failed(if matches!(error, DriverError::Denied(_)) { "permissions" } else { "identity" }, &error),
            None => self.found("identity", endpoint.id.clone()),
        }
        if let Some(why) = &endpoint.unfit {
            self.say("fitness", false, Some(Reason::HypervisorUnfit), why.clone());
        }
        let used = match driver.list(&Wanted::default()).await {
            Ok(listing) => {
                let leftovers: Vec<String> = listing.leftovers.iter().map(|leftover| leftover.what.clone()).collect();
                let leftovers = if leftovers.is_empty() { String::new() } else { format!("; without a VM: {}", leftovers.join(", ")) };
                self.found("listing", format!("{} VMs of CAPW{leftovers}", listing.rows.len()));
                listing.rows.iter().map(|row| row.memory_mib).sum()
            }
            Err(error) => return self.failed("listing", &error),
        };
        for (of, spec) in machines {
            self.machine(driver, of, spec, endpoint.memory_mib, used).await;
        }
    }

    async fn machine(&mut self, driver: &dyn Driver, of: &str, spec: &WindowsMachineSpec, memory_mib: Option<u64>, used_mib: u64) {
        let resolved = match vm_spec(&WindowsMachine::new("check", spec.clone())) {
            Ok(resolved) => resolved,
            Err(error) => return self.say(of, false, Some(Reason::InvalidSpec), error.to_string()),
        };
        let seed = driver.caps().seeds.first().copied().unwrap_or(SeedKind::Drive);
        let checked = driver.check(&resolved, seed).await;
        match &checked {
            Ok(()) => self.found(&format!("{of}: image and networks"), format!("{} and {} interfaces", spec.image, resolved.nics.len())),
            Err(error) => self.say(of, false, driver_failure::reason(error), error.to_string()),
        }
        let firmware = format!("{of}: firmware");
        match driver.image_firmware(&resolved).await {
            Ok(ImageFirmware::Fits(text)) => self.found(&firmware, text),
            Ok(ImageFirmware::NotLookedAt(why)) => self.found(&firmware, format!("not looked at: {why}")),
            Ok(ImageFirmware::Differs(text)) => self.say(&firmware, false, Some(Reason::InvalidSpec), text),
            Err(error) if checked.is_ok() => self.say(&firmware, false, driver_failure::reason(&error), error.to_string()),
            // The error was reported above.
            Err(_) => {}
        }
        if let Some(all) = memory_mib {
            let left = all.saturating_sub(used_mib);
            let has_room = left >= resolved.memory_mib;
            let text = format!("{left} of {all} MiB are not taken by VMs of CAPW; one machine takes {} MiB", resolved.memory_mib);
            let remedy = if has_room { "" } else { ". Remove machines, or use another hypervisor" };
            self.say(&format!("{of}: room"), has_room, (!has_room).then_some(Reason::NoCapacity), format!("{text}{remedy}"));
        }
    }

    /// Reports the known facts about the hypervisor's version, unless it works without restrictions.
    fn version(&mut self, called: &str) {
        let known = self.hypervisor.spec.driver().and_then(|product| compat::hypervisor(product, called));
        if let Some(known) = known.filter(|known| known.verdict != Verdict::Works) {
            let source = known.source.map(|source| format!(" ({source})")).unwrap_or_default();
            let ok = known.verdict != Verdict::Fails;
            self.say("version", ok, (!ok).then_some(Reason::Incompatible), format!("{}{source}", known.why));
        }
    }

    fn found(&mut self, check: &str, message: String) {
        self.say(check, true, None, message);
    }

    fn failed(&mut self, check: &str, error: &DriverError) {
        self.say(check, false, Some(reason(error)), error.to_string());
    }

    fn say(&mut self, check: &str, ok: bool, reason: Option<Reason>, message: String) {
        let hypervisor = self.hypervisor.metadata.name.clone().unwrap_or_default();
        self.findings.push(Finding { hypervisor, check: check.to_owned(), ok, reason: reason.map(Reason::as_str), message });
    }
}

pub(super) fn table(findings: &[Finding]) -> String {
    let width = |of: fn(&Finding) -> usize| findings.iter().map(of).max().unwrap_or_default();
    let (names, checks) = (width(|finding| finding.hypervisor.len()), width(|finding| finding.check.len()));
    let line = |finding: &Finding| {
        let result = finding.reason.unwrap_or(if finding.ok { "ok" } else { "failed" });
        format!("{:names$}  {:checks$}  {result}: {}\n", finding.hypervisor, finding.check, finding.message)
    };
    findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: &str, output: Output) -> (String, bool) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("all.yaml");
        std::fs::write(&file, yaml).unwrap();
        Check { files: vec![file], output, simulated_state: directory.path().join("state") }.run().unwrap()
    }

    fn yaml(simulated: &str, image: &str) -> String {
        format!(
            "apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1\nkind: WindowsHypervisor\nmetadata:\n  name: lab\nspec:\n  simulated: {simulated}\n---\napiVersion: infrastructure.cluster.x-k8s.io/v1alpha1\nkind: WindowsMachineTemplate\nmetadata:\n  name: windows\nspec:\n  template:\n    spec:\n      image: {image}\n"
        )
    }

    #[test]
    fn what_is_there_is_said_to_people() {
        let (text, is_good) = check(&yaml("{}", "windows-server-2022"), Output::Table);
        assert!(is_good, "{text}");
        for line in [
            "lab  login",
            "ok: simulated 1.0",
            "ok: simulated:.lab",
            "0 VMs of CAPW",
            "WindowsMachineTemplate windows: image and networks  ok: windows-server-2022",
            "WindowsMachineTemplate windows: firmware            ok: not looked at: the driver simulated",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }

    #[test]
    fn what_is_missing_is_said_with_the_reason_of_the_condition_and_the_remedy() {
        for (simulated, image, check_, reason, remedy) in [
            ("{unreachable: true}", "windows-server-2022", "login", "HypervisorUnreachable", "set it to false"),
            ("{}", "windows-3.11", "WindowsMachineTemplate windows", "ImageMissing", "correct spec.image"),
            ("{capacity: {cpus: 8, memory: 4Gi}}", "windows-server-2022", "WindowsMachineTemplate windows: room", "NoCapacity", "Remove machines"),
        ] {
            let (text, is_good) = check(&yaml(simulated, image), Output::Json);
            let found: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
            let finding = found.iter().find(|finding| finding["ok"] == false).unwrap();
            assert_eq!((finding["check"].as_str(), finding["reason"].as_str(), is_good), (Some(check_), Some(reason), false));
            assert!(finding["message"].as_str().unwrap().contains(remedy), "{finding}");
        }
    }

    #[test]
    fn a_file_without_a_hypervisor_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.yaml");
        std::fs::write(&file, "kind: Cluster\n").unwrap();
        let check = Check { files: vec![file], output: Output::Table, simulated_state: directory.path().into() };
        assert!(check.run().unwrap_err().contains("-f"));
    }
}
