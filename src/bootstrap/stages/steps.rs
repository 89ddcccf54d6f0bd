//! The users' additions: files, and steps before and after the join.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::builder::{CONTRACT_DOCS, PlanBuilder, item, why};
use super::hardening::rule_kind;
use crate::api::bootstrap_config::{CommandStep, Encoding, File, RegistryStep, Step, StepCheck, WantedState};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::plan::{Access, Check, ExitCodes, FeatureState, Item, Kind, RegistryData, When};
use crate::vm::FailureCode;

/// Adds `spec.files`. Content from a Secret is in the payload's `secret/`, which the last item removes.
pub(super) fn files(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    for (number, file) in facts.spec.files.iter().enumerate() {
        let directory = if file.content_from.is_some() { "secret" } else { "files" };
        let bytes = content(facts, number, file)?;
        let kind = all.file(&format!("{directory}/user-{number:02}"), &file.path, Access::Admins, bytes);
        all.add(item(
            &format!("file-{number:02}"),
            FailureCode::UserFile,
            60,
            kind,
            why("spec.files asks for it.", CONTRACT_DOCS, "Check that the drive of the path exists and has space."),
        ));
    }
    Ok(())
}

fn content(facts: &BootstrapFacts, number: usize, file: &File) -> Result<Vec<u8>, RenderError> {
    let field = format!("spec.files[{number}]");
    match (&file.content, &file.content_from) {
        (Some(text), None) => match file.encoding {
            None => Ok(text.clone().into_bytes()),
            Some(Encoding::Base64) => {
                let plain: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
                let remedy = |e| RenderError::invalid(format!("{field}.content"), "(not shown)", format!("it is not base64: {e}"));
                STANDARD.decode(plain).map_err(remedy)
            }
        },
        (None, Some(from)) => Ok(facts.secrets.bytes(&format!("{field}.contentFrom.secretKeyRef"), &from.secret_key_ref)?.to_vec()),
        _ => Err(RenderError::invalid(field, &file.path, "give exactly one of content and contentFrom")),
    }
}

/// Adds `spec.steps.beforeJoin`.
pub(super) fn before_join(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    steps(all, "spec.steps.beforeJoin", &facts.spec.steps.before_join)?;
    settle(all, "settle-before-join", &facts.spec.steps.before_join);
    Ok(())
}

/// Adds `spec.steps.afterJoin`.
pub(super) fn after_join(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    steps(all, "spec.steps.afterJoin", &facts.spec.steps.after_join)?;
    settle(all, "settle-after-join", &facts.spec.steps.after_join);
    Ok(())
}

/// Returns the seconds that the users' steps may take if every attempt uses its full time.
pub(super) fn seconds(facts: &BootstrapFacts) -> u32 {
    let steps = &facts.spec.steps;
    let each = steps.before_join.iter().chain(&steps.after_join).map(|step| step.timeout_seconds.unsigned_abs() * step.attempts.unsigned_abs());
    each.fold(0, u32::saturating_add)
}

/// Returns the number of restarts that the users' steps may request.
pub(super) fn restarts(facts: &BootstrapFacts) -> u32 {
    let steps = &facts.spec.steps;
    [&steps.before_join, &steps.after_join].into_iter().filter(|steps| steps.iter().any(may_restart)).count().try_into().unwrap_or(2)
}

fn may_restart(step: &Step) -> bool {
    step.feature.is_some()
        || step.registry.as_ref().is_some_and(|registry| registry.restart)
        || step.command.as_ref().and_then(|command| command.exit_codes.as_ref()).is_some_and(|codes| !codes.restart.is_empty())
}

/// Adds one restart for all steps that request it.
fn settle(all: &mut PlanBuilder, id: &str, steps: &[Step]) {
    if steps.iter().any(may_restart) {
        let kind = Kind::Reboot { when: When::Pending };
        let remedy = "Check which of your steps asks for a restart every time.";
        all.add(item(id, FailureCode::UserRestart, 900, kind, why("One of your steps asks for a restart.", CONTRACT_DOCS, remedy)));
    }
}

fn steps(all: &mut PlanBuilder, field: &str, steps: &[Step]) -> Result<(), RenderError> {
    for (index, step) in steps.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let id = format!("user-{}", step.name);
        if all.items.iter().any(|item| item.id == id) {
            return Err(RenderError::invalid(format!("{field}.name"), &step.name, "another step has this name: rename one"));
        }
        let limit = |name: &str, value: i32, most: i32| {
            u32::try_from(value)
                .ok()
                .filter(|_| (1..=most).contains(&value))
                .ok_or_else(|| RenderError::invalid(format!("{field}.{name}"), value.to_string(), format!("give a number from 1 to {most}")))
        };
        let (seconds, attempts) = (limit("timeoutSeconds", step.timeout_seconds, 3600)?, limit("attempts", step.attempts, 10)?);
        let why =
            why("spec.steps asks for it.", CONTRACT_DOCS, "Look into C:\\ProgramData\\capw\\bootstrap.log for its output, and correct the step.");
        all.add(Item { attempts, optional: step.continue_on_error, ..item(&id, FailureCode::UserStep, seconds, kind(&field, step)?, why) });
    }
    Ok(())
}

fn kind(field: &str, step: &Step) -> Result<Kind, RenderError> {
    match (&step.command, &step.registry, &step.firewall, &step.feature, &step.environment) {
        (Some(command), None, None, None, None) => command_kind(field, command),
        (None, Some(registry), None, None, None) => registry_kind(field, registry),
        (None, None, Some(rule), None, None) => Ok(rule_kind("capw-step", rule)),
        (None, None, None, Some(feature), None) => {
            let state = if feature.state == WantedState::Enabled { FeatureState::Enabled } else { FeatureState::Disabled };
            Ok(Kind::Feature { names: feature.names.clone(), state })
        }
        (None, None, None, None, Some(variable)) => Ok(Kind::Environment { name: variable.name.clone(), value: variable.value.clone() }),
        _ => Err(RenderError::invalid(field, &step.name, "give exactly one of command, registry, firewall, feature and environment")),
    }
}

fn command_kind(field: &str, command: &CommandStep) -> Result<Kind, RenderError> {
    if command.argv.first().is_none_or(String::is_empty) {
        return Err(RenderError::invalid(format!("{field}.command.argv"), "", "the first entry is the program, e.g. C:\\k\\tool.exe"));
    }
    // The runner starts programs with a command line, which cannot contain line ends.
    if let Some(word) = command.argv.iter().chain(&command.raw_arguments).find(|word| word.chars().any(char::is_control)) {
        return Err(RenderError::invalid(format!("{field}.command.argv"), word, "remove line ends and other control characters"));
    }
    Ok(Kind::Command {
        argv: command.argv.clone(),
        raw: command.raw_arguments.clone(),
        directory: command.directory.clone().unwrap_or_else(|| r"C:\".into()),
        check: command.check.as_ref().map(|check| wanted(&format!("{field}.command.check"), check)).transpose()?,
        exit_codes: command
            .exit_codes
            .as_ref()
            .map(|codes| ExitCodes { success: codes.success.clone(), restart: codes.restart.clone() })
            .unwrap_or_default(),
        undo: Vec::new(),
    })
}

fn wanted(field: &str, check: &StepCheck) -> Result<Check, RenderError> {
    match (&check.file, &check.registry, &check.service, check.port) {
        (Some(path), None, None, None) => Ok(Check::File(path.clone())),
        (None, Some(value), None, None) => {
            hive(&format!("{field}.registry.key"), &value.key)?;
            Ok(Check::Registry { key: value.key.clone(), name: value.name.clone(), equals: value.equals.clone() })
        }
        (None, None, Some(name), None) => Ok(Check::Service(name.clone())),
        (None, None, None, Some(port)) => {
            let wrong = |_| RenderError::invalid(format!("{field}.port"), port.to_string(), "give a port from 1 to 65535");
            u16::try_from(port).map(Check::Port).map_err(wrong)
        }
        _ => Err(RenderError::invalid(field, "", "give exactly one of file, registry, service and port")),
    }
}

fn registry_kind(field: &str, value: &RegistryStep) -> Result<Kind, RenderError> {
    hive(&format!("{field}.registry.key"), &value.key)?;
    let data = match (&value.string, &value.expand_string, value.dword, &value.multi_string) {
        (Some(text), None, None, None) => RegistryData::String(text.clone()),
        (None, Some(text), None, None) => RegistryData::ExpandString(text.clone()),
        (None, None, Some(number), None) => {
            let wrong = |_| RenderError::invalid(format!("{field}.registry.dword"), number.to_string(), "give a number from 0 to 4294967295");
            RegistryData::Dword(u32::try_from(number).map_err(wrong)?)
        }
        (None, None, None, Some(texts)) if texts.is_empty() => {
            let remedy = "give at least one text: Windows does not keep an empty list apart from none";
            return Err(RenderError::invalid(format!("{field}.registry.multiString"), "[]", remedy));
        }
        (None, None, None, Some(texts)) => RegistryData::MultiString(texts.clone()),
        _ => {
            return Err(RenderError::invalid(
                format!("{field}.registry"),
                &value.name,
                "give exactly one of string, expandString, dword and multiString",
            ));
        }
    };
    Ok(Kind::Registry { key: value.key.clone(), name: value.name.clone(), data, restart: value.restart })
}

fn hive(field: &str, key: &str) -> Result<(), RenderError> {
    let good = key.strip_prefix(r"HKLM:\").is_some_and(|rest| rest.split('\\').all(|part| !part.is_empty() && !part.contains(['/', '*', '?'])));
    good.then_some(()).ok_or_else(|| RenderError::invalid(field, key, r"expected a key below HKLM:\, e.g. HKLM:\SOFTWARE\Example"))
}
