//! The parts of answer files for Windows Setup.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

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
    let root = Element::new("unattend")
        .attribute("xmlns", "urn:schemas-microsoft-com:unattend")
        .attribute("xmlns:wcm", "http://schemas.microsoft.com/WMIConfig/2002/State");
    format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n{}", settings.into_iter().fold(root, Element::with))
}

/// Adds the languages of the user interface, and of keyboard and formats, to a component.
pub fn languages(component: Element, user_interface: &str, locale: &str) -> Element {
    let settings = [("InputLocale", locale), ("SystemLocale", locale), ("UILanguage", user_interface), ("UserLocale", locale)];
    settings.into_iter().fold(component, |component, (setting, value)| component.with(Element::text(setting, value)))
}

/// Returns a command for the pass `specialize`.
pub fn command(description: &str, path: &str) -> Element {
    Element::component("Microsoft-Windows-Deployment").with(
        Element::new("RunSynchronous").with(
            Element::item("RunSynchronousCommand")
                .with(Element::text("Order", "1"))
                .with(Element::text("Description", description))
                .with(Element::text("Path", path))
                .with(Element::text("WillReboot", "Never")),
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
    Element::component("Microsoft-Windows-Shell-Setup")
        .with(
            Element::new("OOBE")
                .with(Element::text("HideEULAPage", "true"))
                .with(Element::text("HideLocalAccountScreen", "true"))
                .with(Element::text("ProtectYourPC", "3")),
        )
        .with(
            Element::new("UserAccounts").with(
                Element::new("AdministratorPassword")
                    .with(Element::text("Value", &hidden(administrator_password)))
                    .with(Element::text("PlainText", "false")),
            ),
        )
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

/// An XML element with either children or text, which is all that an answer file needs.
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: String,
    children: Vec<Element>,
}

impl Element {
    pub fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), text: String::new(), children: Vec::new() }
    }

    pub fn text(name: &'static str, text: &str) -> Self {
        Self { text: escaped(text), ..Self::new(name) }
    }

    /// Returns the settings of a configuration pass.
    pub fn pass(name: &'static str) -> Self {
        Self::new("settings").attribute("pass", name)
    }

    /// Returns a Windows component with the identity it has on every 64-bit edition.
    pub fn component(name: &'static str) -> Self {
        Self::new("component")
            .attribute("name", name)
            .attribute("processorArchitecture", "amd64")
            .attribute("publicKeyToken", "31bf3856ad364e35")
            .attribute("language", "neutral")
            .attribute("versionScope", "nonSxS")
    }

    /// Returns an entry of a list.
    pub fn item(name: &'static str) -> Self {
        Self::new(name).attribute("wcm:action", "add")
    }

    pub fn attribute(mut self, name: &'static str, value: &str) -> Self {
        self.attributes.push((name, value.to_owned()));
        self
    }

    pub fn with(mut self, child: Self) -> Self {
        self.children.push(child);
        self
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
