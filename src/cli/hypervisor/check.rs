//! `capw hypervisor check`: runs the controllers' checks before the creation of a VM for the hypervisors of a file; it changes nothing.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::finding::{Finding, table};
use super::objects::Objects;
use crate::api::condition::Reason;
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::{WindowsMachine, WindowsMachineSpec};
use crate::compat::{self, Verdict};
use crate::hypervisor::drivers::{DriverSettings, Drivers};
use crate::hypervisor::{Driver, DriverError, ImageFirmware, Wanted};
use crate::kinds::hypervisor::decide::listing::{distrust, reason};
use crate::kinds::machine::decide::driver_failure;
use crate::kinds::machine::decide::step::vm_spec;
use crate::operator;
use crate::vm::SeedKind;

/// Flags of `capw hypervisor check`.
#[derive(Args, Debug)]
#[command(after_help = "Exit code 0: nothing is missing. 1: something is, and the table says what to do.")]
pub(super) struct Check {
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

impl Check {
    /// Returns the output, and whether all checks passed.
    pub fn run(&self) -> Result<(String, bool), String> {
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
