//! Checks on the disk of a simulated machine, and the effects of programs that satisfy them.

use super::{Act, Disk, lower, value_name};
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Check, ExitCodes, RegistryData, Start};

impl Disk {
    pub fn holds(&self, check: &Check) -> bool {
        let running = |name: &str| self.services.get(&lower(name)).is_some_and(|service| service.running.is_some());
        match check {
            Check::File(path) => self.has_file(path),
            Check::Pipe(name) => name == paths::CRI_PIPE && running("containerd"),
            Check::Url(url) => url.ends_with(":10248/healthz") && running("kubelet") && self.has_file(paths::KUBELET_CONFIG),
            Check::Registry { key, name, equals } => self.value(key, name).is_some_and(|found| found.eq_ignore_ascii_case(equals)),
            Check::RegistryValue { key, name } => self.registry.contains_key(&value_name(key, name)),
            Check::RegistryKey(key) => self.registry.keys().any(|name| name.starts_with(&value_name(key, ""))),
            Check::Port(port) => *port == 10_250 && running("kubelet") && self.has_file(paths::KUBELET_CONFIG),
            Check::Service(name) => running(name),
            // An image exists once it was pulled; every other program that only inspects succeeds.
            Check::Succeeds(argv) => {
                let found = argv.first().is_some_and(|program| self.has_file(program));
                found && (argv.iter().all(|word| word != "inspecti") || self.succeeds.contains(&argv.join(" ")))
            }
            Check::Not(check) => !self.holds(check),
            Check::All(checks) => checks.iter().all(|check| self.holds(check)),
        }
    }

    pub(super) fn command<'a>(&mut self, argv: &'a [String], check: Option<&Check>, codes: &ExitCodes, moment: u64) -> Act<'a> {
        let Some((program, arguments)) = argv.split_first() else { return Act::Never("the command is empty".into()) };
        if !self.has_file(program) && program.contains(':') {
            return Act::Never(format!("{program} does not exist"));
        }
        if program.eq_ignore_ascii_case(paths::KUBEADM) && arguments.first().is_some_and(|word| word == "join") {
            let configuration = arguments.iter().skip_while(|word| *word != "--config").nth(1);
            return match configuration {
                Some(configuration) if self.has_file(configuration) => Act::Join { configuration },
                Some(configuration) => Act::Never(format!("{configuration} does not exist")),
                None => Act::Never("kubeadm join has no --config".into()),
            };
        }
        // Any other program succeeds, and requires a restart if it can.
        self.restart_pending |= !codes.restart.is_empty();
        if let Some(check) = check {
            self.come_true(check, moment);
        }
        Act::Done
    }

    /// Satisfies the check, as far as a program can do that in this model.
    fn come_true(&mut self, check: &Check, moment: u64) {
        match check {
            Check::File(path) => {
                self.files.insert(lower(path), String::new());
            }
            Check::Registry { key, name, equals } => {
                self.registry.insert(value_name(key, name), RegistryData::String(equals.clone()));
            }
            Check::RegistryValue { key, name } => {
                self.registry.insert(value_name(key, name), RegistryData::String(String::new()));
            }
            Check::RegistryKey(key) => {
                self.registry.insert(value_name(key, ""), RegistryData::String(String::new()));
            }
            Check::Succeeds(argv) => {
                self.succeeds.insert(argv.join(" "));
            }
            Check::Not(check) => match &**check {
                Check::File(path) => {
                    self.files.remove(&lower(path));
                }
                Check::RegistryKey(key) => {
                    let key = value_name(key, "");
                    self.registry.retain(|name, _| !name.starts_with(&key));
                }
                _ => {}
            },
            Check::All(checks) => checks.iter().for_each(|check| self.come_true(check, moment)),
            // The program installed the service.
            Check::Service(name) => {
                self.services.entry(lower(name)).or_default();
                self.set_start(name, Start::Auto);
                self.run_service(name, moment);
            }
            Check::Pipe(_) | Check::Url(_) | Check::Port(_) => {}
        }
    }
}
