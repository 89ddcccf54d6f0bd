//! The error of a guest.

use thiserror::Error;

/// Why a guest did not join, as text for its console. Never holds the token.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct JoinError(pub String);
