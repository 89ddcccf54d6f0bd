//! The answer file for Windows Setup: it answers the questions of a machine's first start and runs the command that starts
//! [`FIRST_BOOT`]. Settings, passes and limits: the Unattended Windows Setup Reference,
//! <https://learn.microsoft.com/windows-hardware/customize/desktop/unattend/>.

pub mod parts;

use std::fmt;

use secrecy::ExposeSecret;

use crate::api::bootstrap_config::Channel;
use crate::bootstrap::digest::sha256;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::xml::element;

/// The script that waits for the end of Setup, finds the drive and runs its script. Images that are not sysprepped contain it already.
pub const FIRST_BOOT: &str = include_str!("../runner/capw-firstboot.ps1");
pub const FIRST_BOOT_NAME: &str = "capw-firstboot.ps1";

/// The bytes of `unattend.xml`. They contain a password, so they are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct AnswerFile(Vec<u8>);

impl AnswerFile {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for AnswerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnswerFile({} bytes)", self.0.len())
    }
}

/// Returns the answer file, in the channel `Unattend`. Fails if a value of a Secret is missing or invalid.
pub(in crate::bootstrap) fn answer(facts: &BootstrapFacts) -> Result<Option<AnswerFile>, RenderError> {
    if facts.spec.channel != Channel::Unattend {
        return Ok(None);
    }
    let unattend = facts.spec.unattend.clone().unwrap_or_default();
    let given = match &unattend.administrator_password_from {
        Some(from) => Some(password(facts.secrets.text("spec.unattend.administratorPasswordFrom", &from.secret_key_ref)?)?),
        None => None,
    };
    let key = match &unattend.product_key_from {
        Some(from) => Some(product_key(facts.secrets.text("spec.unattend.productKeyFrom", &from.secret_key_ref)?)?),
        None => None,
    };
    let mut specialize = parts::component("Microsoft-Windows-Shell-Setup");
    if let Some(name) = &facts.host_name {
        specialize = specialize.with(element("ComputerName").text(name.as_str()));
    }
    if let Some(key) = key {
        specialize = specialize.with(element("ProductKey").text(key));
    }
    // The time zone must be set before the bootstrap checks the clock.
    specialize = specialize.with(element("TimeZone").text(&unattend.time_zone));
    let activation =
        parts::component("Microsoft-Windows-Security-SPP-UX").with(element("SkipAutoActivation").text(if key.is_some() { "false" } else { "true" }));
    let deployment = parts::command("Hand over to capw", &parts::run_from_drive(FIRST_BOOT_NAME, options(given.is_none())));
    let international = parts::languages(parts::component("Microsoft-Windows-International-Core"), &unattend.locale, &unattend.locale);
    let first_start = parts::first_start(&given.map_or_else(|| random(facts), str::to_owned));
    let text = parts::document([
        parts::pass("specialize").with(deployment).with(activation).with(specialize),
        parts::pass("oobeSystem").with(international).with(first_start),
    ]);
    Ok(Some(AnswerFile(text.into_bytes())))
}

fn options(disable_administrator: bool) -> &'static str {
    if disable_administrator { "-Install -DisableAdministrator" } else { "-Install" }
}

/// Returns a password that is not stored anywhere and cannot be computed without the join token. Its end satisfies complexity rules.
fn random(facts: &BootstrapFacts) -> String {
    let digest = sha256(format!("capw administrator {} {}", facts.machine_uid, facts.token.expose_secret()).as_bytes());
    format!("{}Aa1!", digest.get(..32).unwrap_or(&digest))
}

fn password(text: &str) -> Result<&str, RenderError> {
    let refused = || RenderError::invalid("spec.unattend.administratorPasswordFrom", "(not shown)", parts::PASSWORD_RULE);
    parts::is_password(text).then_some(text).ok_or_else(refused)
}

fn product_key(text: &str) -> Result<&str, RenderError> {
    let refused = || RenderError::invalid("spec.unattend.productKeyFrom", "(not shown)", parts::PRODUCT_KEY_RULE);
    parts::is_product_key(text).then_some(text).ok_or_else(refused)
}

#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;
