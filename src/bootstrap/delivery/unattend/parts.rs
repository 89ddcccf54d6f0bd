//! The parts of answer files for Windows Setup.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::xml::{Element, element};

/// The allowed lengths of a local account's password.
const PASSWORD: std::ops::RangeInclusive<usize> = 8..=127;
/// The form that a password must have.
pub const PASSWORD_RULE: &str =
    "expected 8 to 127 characters in one line; Windows also requires three of: upper-case letters, lower-case letters, digits, other characters";
/// The form that a product key must have.
pub const PRODUCT_KEY_RULE: &str = "expected five groups of five upper-case letters or digits, separated by -";
/// The text that Windows appends to a password before it encodes it. That is obfuscation, not encryption.
const PASSWORD_SUFFIX: &str = "AdministratorPassword";

/// Returns the whole file.
pub fn document(settings: impl IntoIterator<Item = Element>) -> String {
    let root = element("unattend")
        .attribute("xmlns", "urn:schemas-microsoft-com:unattend")
        .attribute("xmlns:wcm", "http://schemas.microsoft.com/WMIConfig/2002/State");
    format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n{:#}", root.with_all(settings))
}

/// Returns the settings of a configuration pass.
pub fn pass(name: &'static str) -> Element {
    element("settings").attribute("pass", name)
}

/// Returns a Windows component with the identity it has on every 64-bit edition.
pub fn component(name: &'static str) -> Element {
    element("component")
        .attribute("name", name)
        .attribute("processorArchitecture", "amd64")
        .attribute("publicKeyToken", "31bf3856ad364e35")
        .attribute("language", "neutral")
        .attribute("versionScope", "nonSxS")
}

/// Returns an entry of a list.
pub fn item(name: &'static str) -> Element {
    element(name).attribute("wcm:action", "add")
}

/// Adds the languages of the user interface, and of keyboard and formats, to a component.
pub fn languages(component: Element, user_interface: &str, locale: &str) -> Element {
    let settings = [("InputLocale", locale), ("SystemLocale", locale), ("UILanguage", user_interface), ("UserLocale", locale)];
    settings.into_iter().fold(component, |component, (setting, value)| component.with(element(setting).text(value)))
}

/// Returns a command for the pass `specialize`.
pub fn command(description: &str, path: &str) -> Element {
    component("Microsoft-Windows-Deployment").with(
        element("RunSynchronous").with(
            item("RunSynchronousCommand")
                .with(element("Order").text("1"))
                .with(element("Description").text(description))
                .with(element("Path").text(path))
                .with(element("WillReboot").text("Never")),
        ),
    )
}

/// Returns a command that runs the script at the top of a CD, whose letter is not known in advance. `Path` may have 259 characters.
pub fn run_from_drive(script: &str, options: &str) -> String {
    format!(
        "cmd.exe /c for %d in (D E F G H I J K L) do if exist %d:\\{script} powershell.exe -NoProfile -NonInteractive -ExecutionPolicy RemoteSigned -File %d:\\{script} {options}"
    )
}

/// Returns the answers to the questions of the first start.
pub fn first_start(administrator_password: &str) -> Element {
    component("Microsoft-Windows-Shell-Setup")
        .with(
            element("OOBE")
                .with(element("HideEULAPage").text("true"))
                .with(element("HideLocalAccountScreen").text("true"))
                .with(element("ProtectYourPC").text("3")),
        )
        .with(element("UserAccounts").with(
            element("AdministratorPassword").with(element("Value").text(hidden(administrator_password))).with(element("PlainText").text("false")),
        ))
}

/// Encodes a password as Windows System Image Manager does.
pub fn hidden(password: &str) -> String {
    let units = password.encode_utf16().chain(PASSWORD_SUFFIX.encode_utf16());
    STANDARD.encode(units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>())
}

/// Whether Setup accepts the text as a password, see [`PASSWORD_RULE`].
pub fn is_password(text: &str) -> bool {
    text.chars().all(|c| !c.is_control()) && PASSWORD.contains(&text.encode_utf16().count())
}

/// Whether the text has the form of a product key, see [`PRODUCT_KEY_RULE`].
pub fn is_product_key(text: &str) -> bool {
    let group = |group: &str| group.len() == 5 && group.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    text.split('-').count() == 5 && text.split('-').all(group)
}
