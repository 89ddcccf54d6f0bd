//! Reads a seed as the program in Windows that reads its channel.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::iso::Image;
use super::payload::Payload;
use crate::api::bootstrap_config::Channel;
use crate::bootstrap::delivery::error::ReadError;
use crate::bootstrap::delivery::seed::SeedImage;
use crate::bootstrap::delivery::unattend::FIRST_BOOT_NAME;
use crate::bootstrap::delivery::user_data::ARCHIVE_FILE;
use crate::bootstrap::delivery::{config_drive, guest_info, no_cloud, windows_setup};

/// The data that a machine received.
#[derive(Debug)]
pub struct Delivered {
    /// The channel, as the seed indicates it.
    pub channel: Channel,
    pub instance_id: String,
    /// The name for Windows, if the seed has one.
    pub host_name: Option<String>,
    pub payload: Payload,
}

impl Delivered {
    /// Reads a seed. As in Windows, the label of a drive decides which program reads it.
    pub fn of(seed: &SeedImage) -> Result<Self, ReadError> {
        let mut computer_name = None;
        let (channel, meta, payload) = match seed {
            SeedImage::Drive(bytes) => {
                let image = Image::open(bytes)?;
                let (channel, meta, user_data) = match image.label() {
                    config_drive::LABEL => (Channel::ConfigDrive, config_drive::META_DATA, config_drive::USER_DATA),
                    no_cloud::LABEL => (Channel::NoCloud, no_cloud::META_DATA, no_cloud::USER_DATA),
                    windows_setup::LABEL => {
                        computer_name = Some(setup(image.read(windows_setup::ANSWER)?)?);
                        image.read(FIRST_BOOT_NAME)?;
                        (Channel::Unattend, windows_setup::META_DATA, windows_setup::USER_DATA)
                    }
                    label => return Err(ReadError::Image(format!("no program looks for a drive with the label {label:?}"))),
                };
                (channel, image.read(meta)?.to_vec(), Payload::from_drive(image.read(user_data)?, image.read(ARCHIVE_FILE).ok())?)
            }
            SeedImage::GuestInfo(values) => {
                let value = |key: &str| {
                    let wrong = |text: &str| ReadError::GuestInfo(format!("{key}: {text}"));
                    let found = values.get(key).ok_or_else(|| wrong("is not set"))?;
                    match values.get(&format!("{key}.encoding")).map(String::as_str) {
                        Some("base64") => STANDARD.decode(found).map_err(|error| wrong(&format!("it is not base64: {error}"))),
                        encoding => Err(wrong(&format!("expected encoding base64, found {encoding:?}"))),
                    }
                };
                (Channel::GuestInfo, value(guest_info::META_DATA)?, Payload::from_user_data(&value(guest_info::USER_DATA)?)?)
            }
        };
        let meta: Value = serde_json::from_slice(&meta).map_err(|error| ReadError::MetaData(error.to_string()))?;
        let (id, name) = if channel == Channel::ConfigDrive { ("uuid", "hostname") } else { ("instance-id", "local-hostname") };
        let field = |key: &str| meta.get(key).and_then(Value::as_str).map(str::to_owned);
        let instance_id = field(id).ok_or_else(|| ReadError::MetaData(format!("it has no {id}")))?;
        let host_name = computer_name.unwrap_or_else(|| field(name));
        Ok(Self { channel, instance_id, host_name, payload })
    }
}

/// Returns the computer's name in the answer file for Windows Setup, if it has one. Rejects an answer file that does not run our script.
fn setup(answer: &[u8]) -> Result<Option<String>, ReadError> {
    let wrong = |text: &str| ReadError::Answer(text.to_owned());
    let text = std::str::from_utf8(answer).map_err(|_| wrong("it is not UTF-8"))?;
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(content, _)| content.to_owned())
    };
    if !element("Path").is_some_and(|command| command.contains(FIRST_BOOT_NAME) && command.contains("-Install")) {
        return Err(wrong("it does not run our first-boot script"));
    }
    Ok(element("ComputerName"))
}
