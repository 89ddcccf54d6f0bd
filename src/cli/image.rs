//! `capw image autounattend`: writes the files with which Windows Setup creates an image, unattended.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use rand::Rng;
use rand::distr::Alphanumeric;
use regex::Regex;
use secrecy::{ExposeSecret, SecretString};

use super::output::print;
use crate::api::bootstrap_config::WindowsRelease;
use crate::api::machine::FirmwareType;
use crate::bootstrap::delivery::unattend::parts;
use crate::image::{ANSWER_NAME, Installation};

/// Flags of `capw image`.
#[derive(Args, Debug)]
pub struct Image {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the answer file of an unattended installation of Windows Server, and the script that makes an image of it.
    Autounattend(Autounattend),
}

/// Flags of `capw image autounattend`.
#[derive(Args, Debug)]
#[command(
    after_help = "What the files need beside them is printed. A CD of all that, attached when the installation medium is started, makes the image."
)]
struct Autounattend {
    /// Write the files into this directory.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Release of Windows Server.
    #[arg(long, value_enum)]
    release: Release,
    /// Image on the installation medium, by its name there (`wiminfo install.wim`). Default: Windows Server RELEASE SERVERSTANDARDCORE.
    #[arg(long, value_name = "NAME", value_parser = edition)]
    edition: Option<String>,
    /// Firmware of the machines; the disk is partitioned for it.
    #[arg(long, value_enum, default_value = "uefi")]
    firmware: Firmware,
    /// How machines get their data.
    #[arg(long, value_enum, default_value = "cloudbase-init")]
    delivery: Delivery,
    /// Language of the user interface, which the medium must have.
    #[arg(long, value_name = "LANGUAGE", default_value = "en-US", value_parser = language)]
    language: String,
    /// Language of keyboard and formats. Default: that of the user interface.
    #[arg(long, value_name = "LANGUAGE", value_parser = language)]
    locale: Option<String>,
    /// Time zone, by its Windows name (`tzutil /l`).
    #[arg(long, value_name = "NAME", default_value = "UTC", value_parser = time_zone)]
    time_zone: String,
    /// File with the Administrator's password until the image is sealed; then a random one replaces it. Default: random from the start.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// File with the product key. Default: none, which media for evaluation and for volume licences take.
    #[arg(long, value_name = "FILE")]
    product_key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Release {
    #[value(name = "2019")]
    Server2019,
    #[value(name = "2022")]
    Server2022,
    #[value(name = "2025")]
    Server2025,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Firmware {
    Uefi,
    Bios,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Delivery {
    /// For the channels ConfigDrive, NoCloud and GuestInfo.
    CloudbaseInit,
    /// For the channel Unattend.
    WindowsSetup,
}

impl Image {
    pub fn main(self) -> Result<(), String> {
        let Command::Autounattend(autounattend) = self.command;
        print(autounattend.run()?)
    }
}

impl Autounattend {
    /// Writes the files; returns the list of the other files for the CD.
    fn run(&self) -> Result<String, String> {
        let installation = self.installation()?;
        let failed = |path: &Path, e: io::Error| format!("--output {}: {e}", path.display());
        fs::create_dir_all(&self.output).map_err(|e| failed(&self.output, e))?;
        let mut text = String::new();
        for (name, content) in installation.files() {
            let path = self.output.join(name);
            let written = if name == ANSWER_NAME { write_private(&path, &content) } else { fs::write(&path, content) };
            written.map_err(|e| failed(&path, e))?;
            text.push_str(&format!("{}: written\n", path.display()));
        }
        for name in installation.others() {
            let path = self.output.join(name);
            let state = if path.exists() { "is there" } else { "belongs on the CD too" };
            text.push_str(&format!("{}: {state}\n", path.display()));
        }
        Ok(text)
    }

    fn installation(&self) -> Result<Installation, String> {
        let release = match self.release {
            Release::Server2019 => WindowsRelease::Server2019,
            Release::Server2022 => WindowsRelease::Server2022,
            Release::Server2025 => WindowsRelease::Server2025,
        };
        let year = self.release.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let password = match &self.password_file {
            Some(path) => secret("--password-file", path, parts::is_password, parts::PASSWORD_RULE)?,
            None => random_password(),
        };
        let key = self.product_key_file.as_ref();
        Ok(Installation {
            release,
            edition: self.edition.clone().unwrap_or_else(|| format!("Windows Server {year} SERVERSTANDARDCORE")),
            firmware: match self.firmware {
                Firmware::Uefi => FirmwareType::Uefi,
                Firmware::Bios => FirmwareType::Bios,
            },
            cloudbase_init: self.delivery == Delivery::CloudbaseInit,
            language: self.language.clone(),
            locale: self.locale.clone().unwrap_or_else(|| self.language.clone()),
            time_zone: self.time_zone.clone(),
            password,
            product_key: key.map(|path| secret("--product-key-file", path, parts::is_product_key, parts::PRODUCT_KEY_RULE)).transpose()?,
        })
    }
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    // `mode` applies only to a new file; this file may already exist.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
}

/// Reads a secret from the single line of a file.
fn secret(flag: &str, path: &Path, is_good: fn(&str) -> bool, rule: &str) -> Result<SecretString, String> {
    let at = |what: &dyn std::fmt::Display| format!("{flag} {}: {what}", path.display());
    let text = SecretString::from(fs::read_to_string(path).map_err(|e| at(&e))?);
    let line = text.expose_secret().trim_end_matches(['\r', '\n']);
    if is_good(line) { Ok(line.to_owned().into()) } else { Err(at(&format!("its content (not shown) is not valid: {rule}"))) }
}

/// Creates a random password. Its end satisfies rules about kinds of characters.
fn random_password() -> SecretString {
    let text: String = rand::rng().sample_iter(Alphanumeric).take(24).map(char::from).collect();
    SecretString::from(format!("{text}Aa1!"))
}

fn edition(text: &str) -> Result<String, String> {
    let good = !text.trim().is_empty() && !text.chars().any(char::is_control);
    good.then(|| text.to_owned()).ok_or_else(|| "give a name that `wiminfo install.wim` lists, e.g. Windows Server 2022 SERVERDATACENTER".into())
}

fn language(text: &str) -> Result<String, String> {
    matching(text, "^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){1,3}$", "give a language with its country, e.g. de-DE")
}

fn time_zone(text: &str) -> Result<String, String> {
    matching(text, "^[A-Za-z0-9][-+A-Za-z0-9. ()]{0,63}$", "give a name that `tzutil /l` lists in Windows, e.g. W. Europe Standard Time")
}

fn matching(text: &str, pattern: &str, remedy: &str) -> Result<String, String> {
    let pattern = Regex::new(pattern).map_err(|e| e.to_string())?;
    pattern.is_match(text).then(|| text.to_owned()).ok_or_else(|| remedy.to_owned())
}

#[cfg(test)]
mod tests;
