//! The answer file for Windows Setup: it answers the questions of a machine's first start and runs the command that hands over to
//! [`FIRST_BOOT`]. Settings, passes and limits: the Unattended Windows Setup Reference,
//! <https://learn.microsoft.com/windows-hardware/customize/desktop/unattend/>.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret;

use crate::api::bootstrap_config::Channel;
use crate::bootstrap::digest::sha256;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;

/// Waits for the end of Setup, finds the drive and runs its script. Images that are not sysprepped contain it already.
pub const FIRST_BOOT: &str = include_str!("../runner/capw-firstboot.ps1");
pub const FIRST_BOOT_NAME: &str = "capw-firstboot.ps1";

/// Allowed lengths of a local account's password.
const PASSWORD: std::ops::RangeInclusive<usize> = 8..=127;
/// Windows appends this to a password before it encodes it. That is obfuscation, not encryption.
const PASSWORD_SUFFIX: &str = "AdministratorPassword";

/// `unattend.xml`. It contains a password: never shown.
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

/// The answer file, in the channel `Unattend`. Fails if a value of a Secret is missing or invalid.
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
    let mut specialize = Element::component("Microsoft-Windows-Shell-Setup");
    if let Some(name) = &facts.host_name {
        specialize.push(Element::text("ComputerName", name.as_str()));
    }
    if let Some(key) = key {
        specialize.push(Element::text("ProductKey", key));
    }
    // Set before the bootstrap checks the clock.
    specialize.push(Element::text("TimeZone", &unattend.time_zone));
    let activation = Element::component("Microsoft-Windows-Security-SPP-UX")
        .with(Element::text("SkipAutoActivation", if key.is_some() { "false" } else { "true" }));
    let deployment = Element::component("Microsoft-Windows-Deployment").with(
        Element::new("RunSynchronous").with(
            Element::new("RunSynchronousCommand")
                .attribute("wcm:action", "add")
                .with(Element::text("Order", "1"))
                .with(Element::text("Description", "Hand over to capw"))
                .with(Element::text("Path", &command(given.is_none())))
                .with(Element::text("WillReboot", "Never")),
        ),
    );
    let locale = ["InputLocale", "SystemLocale", "UILanguage", "UserLocale"].map(|setting| Element::text(setting, &unattend.locale));
    let international = locale.into_iter().fold(Element::component("Microsoft-Windows-International-Core"), Element::with);
    let shell = Element::component("Microsoft-Windows-Shell-Setup")
        .with(
            Element::new("OOBE")
                .with(Element::text("HideEULAPage", "true"))
                .with(Element::text("HideLocalAccountScreen", "true"))
                .with(Element::text("ProtectYourPC", "3")),
        )
        .with(
            Element::new("UserAccounts").with(
                Element::new("AdministratorPassword")
                    .with(Element::text("Value", &hidden(&given.map_or_else(|| random(facts), str::to_owned))))
                    .with(Element::text("PlainText", "false")),
            ),
        );
    let root = Element::new("unattend")
        .attribute("xmlns", "urn:schemas-microsoft-com:unattend")
        .attribute("xmlns:wcm", "http://schemas.microsoft.com/WMIConfig/2002/State")
        .with(Element::new("settings").attribute("pass", "specialize").with(deployment).with(activation).with(specialize))
        .with(Element::new("settings").attribute("pass", "oobeSystem").with(international).with(shell));
    Ok(Some(AnswerFile(format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n{root}").into_bytes())))
}

/// The drive's letter is not known in advance. `Path` may have 259 characters.
fn command(disable_administrator: bool) -> String {
    let disable = if disable_administrator { " -DisableAdministrator" } else { "" };
    format!(
        "cmd.exe /c for %d in (D E F G H I J K L) do if exist %d:\\{FIRST_BOOT_NAME} powershell.exe -NoProfile -NonInteractive -ExecutionPolicy RemoteSigned -File %d:\\{FIRST_BOOT_NAME} -Install{disable}"
    )
}

/// The encoding that Windows System Image Manager uses for passwords.
fn hidden(password: &str) -> String {
    let units = password.encode_utf16().chain(PASSWORD_SUFFIX.encode_utf16());
    STANDARD.encode(units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>())
}

/// A password that is not stored anywhere and cannot be computed without the join token. Its end satisfies complexity rules.
fn random(facts: &BootstrapFacts) -> String {
    let digest = sha256(format!("capw administrator {} {}", facts.machine_uid, facts.token.expose_secret()).as_bytes());
    format!("{}Aa1!", digest.get(..32).unwrap_or(&digest))
}

fn password(text: &str) -> Result<&str, RenderError> {
    let plain = text.chars().all(|c| !c.is_control());
    (plain && PASSWORD.contains(&text.encode_utf16().count())).then_some(text).ok_or_else(|| {
        let remedy = "expected 8 to 127 characters in one line; Windows also requires three of: upper-case letters, lower-case letters, digits, other characters";
        RenderError::invalid("spec.unattend.administratorPasswordFrom", "(not shown)", remedy)
    })
}

fn product_key(text: &str) -> Result<&str, RenderError> {
    let group = |group: &str| group.len() == 5 && group.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let ok = text.split('-').count() == 5 && text.split('-').all(group);
    ok.then_some(text).ok_or_else(|| {
        let remedy = "expected five groups of five upper-case letters or digits, separated by -";
        RenderError::invalid("spec.unattend.productKeyFrom", "(not shown)", remedy)
    })
}

/// An XML element with either children or text: all that an answer file needs.
struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, &'static str)>,
    text: String,
    children: Vec<Element>,
}

impl Element {
    fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), text: String::new(), children: Vec::new() }
    }

    fn text(name: &'static str, text: &str) -> Self {
        Self { text: escaped(text), ..Self::new(name) }
    }

    /// A Windows component with the identity it has on every 64-bit edition.
    fn component(name: &'static str) -> Self {
        Self::new("component")
            .attribute("name", name)
            .attribute("processorArchitecture", "amd64")
            .attribute("publicKeyToken", "31bf3856ad364e35")
            .attribute("language", "neutral")
            .attribute("versionScope", "nonSxS")
    }

    fn attribute(mut self, name: &'static str, value: &'static str) -> Self {
        self.attributes.push((name, value));
        self
    }

    fn with(mut self, child: Self) -> Self {
        self.children.push(child);
        self
    }

    fn push(&mut self, child: Self) {
        self.children.push(child);
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        write!(f, "{indent}<{}", self.name)?;
        self.attributes.iter().try_for_each(|(name, value)| write!(f, " {name}=\"{value}\""))?;
        if self.children.is_empty() && self.text.is_empty() {
            return writeln!(f, " />");
        }
        if self.children.is_empty() {
            return writeln!(f, ">{}</{}>", self.text, self.name);
        }
        writeln!(f, ">")?;
        self.children.iter().try_for_each(|child| child.write(f, depth + 1))?;
        writeln!(f, "{indent}</{}>", self.name)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
