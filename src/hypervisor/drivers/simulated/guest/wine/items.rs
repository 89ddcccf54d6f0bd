//! The implementation of each kind of item under Wine: its test and its act. All kinds are here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256, Sha512};

use super::disk::{Disk, Kept};
use super::machine::Machine;
use super::prefix::resolve;
use super::registry::{self, Value};
use super::services::{CONSOLE, Service, Services};
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Check, ExitCodes, FeatureState, Item, Kind, Plan, ProxyAddress, RegistryData, Script, Variables};
use crate::hypervisor::drivers::simulated::guest::image::{self, AUTOMATIC};
use crate::hypervisor::drivers::simulated::guest::powered::Guest;
use crate::hypervisor::drivers::simulated::guest::runner::Failure;
use crate::hypervisor::drivers::simulated::record::{remove_all, replace};

const WINDOWS: &str = r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion";
const ENVIRONMENT: &str = r"HKLM\SYSTEM\CurrentControlSet\Control\Session Manager\Environment";

/// A running Windows with a plan.
pub struct Windows<'a> {
    pub guest: &'a Guest,
    pub disk: &'a Disk,
    pub machine: &'a Machine,
    pub services: &'a mut Services,
    pub plan: &'a Plan,
    pub kept: &'a mut Kept,
    /// The moment of the start of Windows and of its automatic services.
    pub started: u64,
    /// The moments at which the plan started services since then.
    pub services_started: BTreeMap<String, u64>,
}

type Found = Result<bool, String>;

/// Whether Windows has the service and Wine lacks it: acts on such a service are recorded.
fn is_of_windows(service: &str) -> bool {
    image::TRIGGERED.iter().any(|own| own.eq_ignore_ascii_case(service))
}

impl Windows<'_> {
    fn path(&self, windows: &str) -> Result<PathBuf, String> {
        resolve(&self.disk.prefix(), windows).map_err(|error| error.0)
    }

    /// Whether the item is true. Changes nothing.
    pub async fn test(&self, item: &Item) -> Found {
        match &item.kind {
            Kind::Directory { paths, .. } => paths.iter().try_fold(true, |all, path| Ok(all && self.path(path)?.is_dir())),
            Kind::File { path, sha256: wanted, .. } => {
                Ok(fs::read(self.path(path)?).is_ok_and(|bytes| HEXLOWER.encode(&Sha256::digest(bytes)) == *wanted))
            }
            Kind::Download { path, digest, .. } => Ok(fs::read(self.path(path)?).is_ok_and(|bytes| digest_like(&bytes, digest) == *digest)),
            Kind::Archive { digest, directory, files, .. } => {
                let missing = files
                    .iter()
                    .try_fold(false, |missing, file| Ok::<_, String>(missing || !self.path(&format!(r"{directory}\{file}"))?.exists()))?;
                Ok(!missing && self.kept.recorded.unpacked.get(&item.id) == Some(digest))
            }
            Kind::Registry { key, name, data, .. } => self.has_value(key, name, data).await,
            Kind::ServiceEnvironment { service, variables: Variables::Plain(lines) } => {
                self.has_value(&service_key(service), "Environment", &RegistryData::MultiString(lines.clone())).await
            }
            Kind::ServiceEnvironment { service, variables: Variables::Secret { sha256: wanted, .. } } => {
                let found = registry::read(self.machine, &service_key(service), "Environment").await?;
                Ok(found.is_some_and(|found| HEXLOWER.encode(&Sha256::digest(found.data.replace("\\0", "\n"))) == *wanted))
            }
            Kind::Environment { name, value } => self.has_value(ENVIRONMENT, name, &RegistryData::String(value.clone())).await,
            Kind::Feature { names, state } => {
                Ok(names.iter().all(|name| self.kept.recorded.features.contains(name) == (*state == FeatureState::Enabled)))
            }
            Kind::Firewall { name, .. } => Ok(self.kept.recorded.firewall.get(name) == Some(&item.kind)),
            Kind::Service { name, command_line, start, depends_on, reset_seconds, restart_delays, .. } => {
                let wanted = Service::new(command_line, *start, depends_on, *reset_seconds, restart_delays);
                Ok(self.kept.recorded.services.get(name) == Some(&wanted) && self.services.is_set(name, &wanted).await?)
            }
            Kind::Running { name, .. } if is_of_windows(name) => Ok(self.kept.recorded.scripts.get(&item.id) == Some(&item.kind)),
            Kind::Running { name, after } => {
                let since = self.services_started.get(name).copied().unwrap_or(self.started);
                Ok(after.iter().all(|id| self.kept.journal.acted(id) <= since) && self.services.runs(name).await?)
            }
            Kind::Task { name, argv, .. } => Ok(self.kept.recorded.tasks.get(name) == Some(argv)),
            Kind::Command { check: None, .. } => Ok(self.kept.recorded.ran.get(&item.id) == Some(&item.kind)),
            Kind::Script(Script::Identity { build }) => {
                let found = registry::read(self.machine, WINDOWS, "CurrentBuildNumber").await?;
                Ok(found.is_some_and(|found| found.text() == build.to_string()))
            }
            Kind::Script(_) => Ok(self.kept.recorded.scripts.get(&item.id) == Some(&item.kind)),
            Kind::Command { check: Some(check), .. } | Kind::Wait { check } => self.check(check).await,
            Kind::Reboot { .. } => Ok(!self.kept.recorded.restart_pending),
            Kind::Absent { paths, tasks } => {
                let gone = paths.iter().try_fold(true, |gone, path| Ok::<_, String>(gone && !self.path(path)?.exists()))?;
                Ok(gone && tasks.iter().all(|task| !self.kept.recorded.tasks.contains_key(task)))
            }
        }
    }

    /// Tries to apply the item.
    pub async fn make_true(&mut self, item: &Item) -> Result<(), Failure> {
        match &item.kind {
            Kind::Directory { paths, .. } => {
                for path in paths {
                    fs::create_dir_all(self.path(path)?).map_err(said(path))?;
                }
            }
            Kind::File { path, source, .. } => {
                let (bytes, to) = (self.source(source)?, self.path(path)?);
                to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| replace(&to, &bytes)).map_err(said(path))?;
            }
            Kind::Download { url, path, digest, proxy } => {
                let to = self.path(path)?;
                let temporary = to.with_extension("new");
                to.parent().map_or(Ok(()), fs::create_dir_all).map_err(said(path))?;
                let proxy = match proxy {
                    Some(ProxyAddress::Plain(address)) => Some(address.clone()),
                    Some(ProxyAddress::Secret { source, .. }) => Some(String::from_utf8_lossy(&self.source(source)?).into_owned()),
                    None => None,
                };
                let authorities = self.path(paths::CA_BUNDLE)?;
                self.machine
                    .download(url, &temporary, proxy.as_deref(), Some(authorities.as_path()).filter(|path| path.exists()), item.seconds)
                    .await?;
                let bytes = fs::read(&temporary).map_err(said(path))?;
                let found = digest_like(&bytes, digest);
                if found != *digest {
                    fs::remove_file(&temporary).map_err(said(path))?;
                    return Err(Failure {
                        message: format!("expected {url} with digest {digest}, found {found}: correct the one or the other"),
                        last: true,
                    });
                }
                fs::rename(&temporary, &to).map_err(said(path))?;
            }
            Kind::Archive { path, digest, directory, strip, files } => {
                let (archive, into) = (self.path(path)?, self.path(directory)?);
                let found = fs::read(&archive).map(|bytes| digest_like(&bytes, digest)).map_err(said(path))?;
                if found != *digest {
                    return Err(format!("expected {path} with digest {digest}, found {found}").into());
                }
                fs::create_dir_all(&into).map_err(said(directory))?;
                for file in files {
                    // A running program keeps its file, and the name becomes free.
                    fs::remove_file(into.join(file)).or_else(missing).map_err(said(file))?;
                }
                self.machine.unpack(&archive, &into, *strip).await?;
                if let Some(file) = files.iter().find(|file| !into.join(file).exists()) {
                    return Err(Failure { message: format!("expected {file} in {path}, found none: it is another archive"), last: true });
                }
                self.kept.recorded.unpacked.insert(item.id.clone(), digest.clone());
            }
            Kind::Registry { key, name, data, restart } => {
                registry::write(self.machine, key, name, data).await?;
                self.kept.recorded.restart_pending |= *restart;
            }
            Kind::ServiceEnvironment { service, variables } => {
                let lines = RegistryData::MultiString(self.lines(variables)?);
                registry::write(self.machine, &service_key(service), "Environment", &lines).await?;
            }
            Kind::Environment { name, value } => {
                registry::write(self.machine, ENVIRONMENT, name, &RegistryData::String(value.clone())).await?;
            }
            Kind::Feature { names, state } => {
                for name in names {
                    self.kept.recorded.restart_pending |= match state {
                        FeatureState::Enabled => self.kept.recorded.features.insert(name.clone()),
                        FeatureState::Disabled => self.kept.recorded.features.remove(name),
                    };
                }
            }
            Kind::Firewall { name, .. } => {
                self.kept.recorded.firewall.insert(name.clone(), item.kind.clone());
            }
            Kind::Script(Script::Identity { build }) => return Err(format!("expected Windows Server of build {build}, found another").into()),
            Kind::Script(script) => {
                self.kept.recorded.restart_pending |= matches!(script, Script::Hypervisor | Script::DomainJoin { .. });
                self.kept.recorded.scripts.insert(item.id.clone(), item.kind.clone());
            }
            Kind::Service { name, command_line, start, depends_on, reset_seconds, restart_delays, .. } => {
                let wanted = Service::new(command_line, *start, depends_on, *reset_seconds, restart_delays);
                self.services.set(name, &wanted).await?;
                self.kept.recorded.services.insert(name.clone(), wanted);
            }
            Kind::Running { name, .. } if is_of_windows(name) => {
                self.kept.recorded.scripts.insert(item.id.clone(), item.kind.clone());
            }
            Kind::Running { name, .. } => {
                self.services.start(name, &self.kept.recorded.services).await?;
                let moment = self.kept.journal.next_moment();
                self.services_started.insert(name.clone(), moment);
            }
            Kind::Task { name, argv, .. } => {
                self.kept.recorded.tasks.insert(name.clone(), argv.clone());
            }
            // Wine's certutil does nothing: this arm writes the result that certutil would leave.
            Kind::Command { argv, check: Some(Check::RegistryKey(key)), .. } if argv.first().is_some_and(|program| program == "certutil.exe") => {
                registry::write(self.machine, key, "Origin", &RegistryData::String(item.id.clone())).await?;
            }
            Kind::Command { argv, check: Some(Check::Registry { key, name, .. }), .. }
                if argv.get(2).is_some_and(|service| is_of_windows(service)) =>
            {
                registry::write(self.machine, key, name, &RegistryData::Dword(AUTOMATIC)).await?;
            }
            Kind::Command { argv, directory, exit_codes, check, .. } => {
                let code = self.run(&item.id, argv, directory, item.seconds, exit_codes).await?;
                self.kept.recorded.restart_pending |= exit_codes.restart.contains(&code);
                // A command with a check is known by its result, also when a kill came before this line.
                if check.is_none() {
                    self.kept.recorded.ran.insert(item.id.clone(), item.kind.clone());
                }
            }
            Kind::Wait { .. } | Kind::Reboot { .. } => return Err(format!("{} is not done, but seen", item.id).into()),
            Kind::Absent { paths, tasks } => {
                for path in paths {
                    let at = self.path(path)?;
                    if at.is_dir() { remove_all(&at) } else { fs::remove_file(&at).or_else(missing) }.map_err(said(path))?;
                }
                self.kept.recorded.tasks.retain(|task, _| !tasks.contains(task));
            }
        }
        Ok(())
    }

    pub async fn check(&self, check: &Check) -> Found {
        match check {
            Check::File(path) => Ok(self.path(path)?.exists()),
            Check::Pipe(name) => self.services.pipe(name).await,
            Check::Url(url) => self.machine.answers(url).await.map_err(|error| error.to_string()),
            Check::Registry { key, name, equals } => {
                let found = registry::read(self.machine, key, name).await?;
                Ok(found.is_some_and(|found| found.text().eq_ignore_ascii_case(equals)))
            }
            Check::RegistryValue { key, name } => Ok(registry::read(self.machine, key, name).await?.is_some()),
            Check::RegistryKey(key) => registry::has_key(self.machine, key).await,
            Check::Port(port) => self.machine.listens(*port).await.map_err(|error| error.to_string()),
            Check::Service(name) => self.services.runs(name).await,
            Check::Succeeds(argv) => {
                let id = argv.first().and_then(|program| program.rsplit('\\').next()).unwrap_or("check");
                Ok(self.run(&format!("check-{id}"), argv, r"C:\", 60, &ExitCodes::default()).await.is_ok())
            }
            Check::Not(check) => Ok(!Box::pin(self.check(check)).await?),
            Check::All(checks) => {
                for check in checks {
                    if !Box::pin(self.check(check)).await? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    async fn has_value(&self, key: &str, name: &str, data: &RegistryData) -> Found {
        Ok(registry::read(self.machine, key, name).await? == Some(Value::of(data)))
    }

    /// The variables of a service, `NAME=value`.
    fn lines(&self, variables: &Variables) -> Result<Vec<String>, String> {
        match variables {
            Variables::Plain(lines) => Ok(lines.clone()),
            Variables::Secret { source, .. } => Ok(String::from_utf8_lossy(&self.source(source)?).split('\n').map(str::to_owned).collect()),
        }
    }

    /// Reads a file of the payload from the loader's directory.
    fn source(&self, source: &str) -> Result<Vec<u8>, String> {
        let path = format!(r"{}\{}", paths::PAYLOAD, source.replace('/', r"\"));
        fs::read(self.path(&path)?).map_err(said(&path))
    }

    /// Runs a program to its end. Its output is written to a file named after the item; its last line is part of the error.
    pub async fn run(&self, id: &str, argv: &[String], directory: &str, seconds: u32, codes: &ExitCodes) -> Result<i32, String> {
        let program = argv.first().map(String::as_str).unwrap_or_default();
        let log = self.disk.logs().join(format!("{id}.log"));
        let open = || fs::File::options().create(true).append(true).open(&log);
        let number = self.disk.logs().join(format!("{id}.number"));
        let words: Vec<&str> = std::iter::once(CONSOLE).chain(argv.iter().map(String::as_str)).collect();
        let mut command = self.machine.windows(&self.path(directory)?, Some(&number), &words);
        // Programs search the PATH for their neighbours: kubeadm runs "kubelet" for its version.
        command.env("WINEPATH", program.rsplit_once('\\').map_or("", |(beside, _)| beside));
        command.stdout(open().map_err(said(program))?).stderr(open().map_err(said(program))?).stdin(Stdio::null());
        let limit = Duration::from_secs(u64::from(seconds));
        let ended = tokio::time::timeout(limit, command.status()).await;
        match ended {
            Ok(Ok(status)) if codes.success.iter().chain(&codes.restart).any(|code| status.code() == Some(code & 0xff)) => {
                // This host gets only the low byte of an exit code.
                let code = codes.success.iter().chain(&codes.restart).find(|code| status.code() == Some(*code & 0xff));
                Ok(code.copied().unwrap_or_default())
            }
            Ok(Ok(status)) => {
                let text = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
                let said = redacted(last_words(&text), &self.plan.redact);
                Err(format!("{program} ended with {}: {said}", status.code().unwrap_or(-1)))
            }
            Ok(Err(error)) => Err(format!("{program} cannot be run: {error}")),
            Err(_) => {
                self.machine.kill(&number).await.map_err(said(program))?;
                Err(format!("{program} did not end within {seconds} seconds"))
            }
        }
    }
}

/// The digest of these bytes by the algorithm of the expected digest, which is written before its colon.
fn digest_like(bytes: &[u8], expected: &str) -> String {
    if expected.starts_with("sha512:") {
        return format!("sha512:{}", HEXLOWER.encode(&Sha512::digest(bytes)));
    }
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

fn service_key(service: &str) -> String {
    format!(r"HKLM\SYSTEM\CurrentControlSet\Services\{service}")
}

fn said(what: &str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

fn missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// A program's output without the secrets that the plan bars from logs.
fn redacted(text: &str, forms: &[String]) -> String {
    let forms = forms.iter().filter_map(|form| regex::Regex::new(form).ok());
    forms.fold(text.to_owned(), |text, form| form.replace_all(&text, "<secret>").into_owned())
}

/// The last output of a failed program: the line that it marks as an error, otherwise its last line.
fn last_words(text: &str) -> &str {
    let lines = || text.lines().rev().filter(|line| !line.trim().is_empty());
    let error = lines().take(20).find(|line| line.contains("error: ") || line.contains("[ERROR"));
    error.or_else(|| lines().next()).unwrap_or("it printed nothing").trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_cut_and_clean() {
        let said = "I1 x\n[ERROR Port]: abcdef.0123456789abcdef is used\nerror: it failed\nTo see the stack trace, use --v=5\n";
        assert_eq!(last_words(said), "error: it failed");
        assert_eq!(last_words("a\nb\n\n"), "b");
        assert_eq!(redacted(said.lines().nth(1).unwrap(), &["[a-z0-9]{6}[.][a-z0-9]{16}".into()]), "[ERROR Port]: <secret> is used");
    }
}
