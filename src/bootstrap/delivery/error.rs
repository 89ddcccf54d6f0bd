//! The reasons why delivered bytes cannot be read.

use thiserror::Error;

/// The reason why bytes are not our bootstrap data. The input comes from outside and is not trusted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    #[error("user data: {0}")]
    UserData(String),
    #[error("archive: {0}")]
    Archive(String),
    #[error("node.json: {0}")]
    Plan(String),
    #[error("config drive: {0}")]
    Image(String),
    #[error("metadata: {0}")]
    MetaData(String),
    #[error("unattend.xml: {0}")]
    Answer(String),
    #[error("guestinfo: {0}")]
    GuestInfo(String),
}
