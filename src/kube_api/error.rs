//! Failed requests to the Kubernetes API, in the classes that decide what happens next.
//!
//! Created from kube's error in one place. Messages name the request and the object and never contain the body of a request.

use std::time::Duration;

use kube::core::Status;
use thiserror::Error;

use super::limits::TooMuch;
use crate::causes::chain;

/// The most characters of a server's message that are kept.
const TEXT: usize = 1000;

/// When to retry after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// At once: the object that was read is stale, the next read will differ.
    Soon,
    /// After the object's own exponential back-off.
    Backoff,
    /// Only when something changes: the same request would fail in the same way.
    OnChange,
}

/// A failed request. The message of each variant names the request and has the server's answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ApiError {
    /// The object does not exist. Reads return `None` instead.
    #[error("{0}")]
    NotFound(String),
    /// The server does not know the path, because it does not serve the kind. The answer is a page, like the answer of a proxy in front of a
    /// server: it proves nothing about an object.
    #[error("{0}")]
    NotServed(String),
    /// Another client changed the object, or it was deleted and recreated.
    #[error("{0}")]
    Conflict(String),
    /// An object of that name exists.
    #[error("{0}")]
    AlreadyExists(String),
    /// Our credentials may not do this.
    #[error("{0}; grant it to this user, e.g. by config/rbac of this provider")]
    Forbidden(String),
    /// A ResourceQuota of the namespace is used up. The message names the request without the object, so that it stays the same.
    #[error("{0}; raise the ResourceQuota, or make room in it")]
    QuotaExceeded(String),
    /// The server does not accept our credentials.
    #[error("{0}; the credentials are wrong or have expired")]
    Unauthorized(String),
    /// The server refuses the request as invalid.
    #[error("{0}")]
    Invalid(String),
    /// The server did not answer, or a proxy in front of it answered instead.
    #[error("{0}")]
    Unreachable(String),
    /// The server requests a delay.
    #[error("the API server is busy and asks to wait {}s", .after.as_secs())]
    Throttled { after: Duration },
    /// The server's answer is larger than we read.
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    Other(String),
}

impl ApiError {
    /// Converts kube's error. `what` is the request as `kubectl` would name it, e.g. `patch windowsmachines lab/win-1`.
    pub fn of(what: &str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::answered(what, &status),
            kube::Error::HyperError(e) => Self::Unreachable(format!("{what}: {}", chain(&e))),
            kube::Error::Service(e) => {
                let text = format!("{what}: {}", chain(e.as_ref()));
                match e.downcast_ref() {
                    Some(TooMuch::Large(_) | TooMuch::Costly(_)) => Self::TooLarge(text),
                    // This is temporary, and independent of the server.
                    Some(TooMuch::Crowded { .. }) => Self::Other(text),
                    Some(TooMuch::NoAnswer(_) | TooMuch::Slow(_)) | None => Self::Unreachable(text),
                }
            }
            kube::Error::ReadEvents(e) => Self::Unreachable(format!("{what}: {}", chain(&e))),
            kube::Error::Auth(e) => Self::Unauthorized(format!("{what}: {}", chain(&e))),
            // The text of these may quote a body; the class is enough.
            kube::Error::SerdeError(e) => {
                Self::Other(format!("{what}: the answer is not what was expected (line {}, column {})", e.line(), e.column()))
            }
            other => Self::Other(format!("{what}: {}", chain(&other))),
        }
    }

    /// Converts an error status of the API server.
    pub(crate) fn answered(what: &str, status: &Status) -> Self {
        let text = format!("{what}: {}", short(&status.message));
        let uid_differs = || {
            let causes = status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default();
            causes.iter().any(|c| c.field == "metadata.uid")
        };
        if status.is_not_found() {
            Self::NotFound(text)
        } else if status.is_already_exists() {
            Self::AlreadyExists(text)
        } else if status.is_conflict() {
            Self::Conflict(text)
        } else if let Some((_, quota)) = status.message.split_once("exceeded quota: ").filter(|_| status.is_forbidden()) {
            let request = what.rsplit_once(' ').map_or(what, |(request, _)| request);
            Self::QuotaExceeded(format!("{request}: exceeded quota: {quota}"))
        } else if status.is_forbidden() {
            Self::Forbidden(text)
        } else if status.is_invalid() && uid_differs() {
            // The patch carries the UID of a former object of this name.
            Self::Conflict(text)
        } else {
            match status.code {
                401 => Self::Unauthorized(text),
                404 => Self::NotServed(text),
                429 => {
                    let seconds = status.details.as_ref().map_or(1, |d| d.retry_after_seconds.clamp(1, 300));
                    Self::Throttled { after: Duration::from_secs(seconds.into()) }
                }
                400 | 405 | 406 | 413 | 415 | 422 => Self::Invalid(text),
                502..=504 => Self::Unreachable(text),
                _ => Self::Other(text),
            }
        }
    }

    /// A label for metrics: few, fixed values.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::NotServed(_) => "not_served",
            Self::Conflict(_) => "conflict",
            Self::AlreadyExists(_) => "already_exists",
            Self::Forbidden(_) => "forbidden",
            Self::QuotaExceeded(_) => "quota_exceeded",
            Self::Unauthorized(_) => "unauthorized",
            Self::Invalid(_) => "invalid",
            Self::Unreachable(_) => "unreachable",
            Self::Throttled { .. } => "throttled",
            Self::TooLarge(_) => "too_large",
            Self::Other(_) => "other",
        }
    }

    /// Whether the server understood the request and refuses it: the same request will be refused again.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::QuotaExceeded(_) | Self::Invalid(_))
    }

    /// Returns the shortest delay, as the server requested it.
    pub fn not_before(&self) -> Duration {
        match self {
            Self::Throttled { after } => *after,
            _ => Duration::ZERO,
        }
    }

    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict(_) | Self::AlreadyExists(_) => Retry::Soon,
            Self::NotFound(_) | Self::Invalid(_) => Retry::OnChange,
            Self::NotServed(_)
            | Self::Forbidden(_)
            | Self::QuotaExceeded(_)
            | Self::Unauthorized(_)
            | Self::Unreachable(_)
            | Self::Throttled { .. }
            | Self::TooLarge(_)
            | Self::Other(_) => Retry::Backoff,
        }
    }
}

/// Cuts a message: a proxy in front of a server may answer with a whole page, whose beginning is enough for a condition.
fn short(message: &str) -> String {
    match message.char_indices().nth(TEXT) {
        Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::*;

    fn status(code: u16, reason: &str) -> Status {
        Status::failure("no", reason).with_code(code)
    }

    #[test]
    fn every_answer_has_its_class() {
        let class = |code, reason| ApiError::answered("get x", &status(code, reason)).label();
        for (code, reason, label) in [
            (404, "NotFound", "not_found"),
            // kube's text for an answer that is a page.
            (404, "Failed to parse error data", "not_served"),
            (409, "AlreadyExists", "already_exists"),
            (409, "Conflict", "conflict"),
            (403, "Forbidden", "forbidden"),
            (401, "Unauthorized", "unauthorized"),
            (422, "Invalid", "invalid"),
            (400, "BadRequest", "invalid"),
            (429, "TooManyRequests", "throttled"),
            (503, "ServiceUnavailable", "unreachable"),
            (504, "Timeout", "unreachable"),
            (500, "InternalError", "other"),
            (418, "", "other"),
        ] {
            assert_eq!(class(code, reason), label, "{code} {reason}");
        }
    }

    #[test]
    fn a_page_in_the_servers_place_is_cut() {
        let page = Status::failure(&"ä".repeat(100_000), "").with_code(502);
        let text = ApiError::answered("get x", &page).to_string();
        assert!(text.starts_with("get x: ä") && text.ends_with("ä…") && text.chars().count() == 7 + TEXT + 1, "{}", text.chars().count());
    }

    #[test]
    fn a_former_object_of_that_name_is_a_conflict() {
        let details = serde_json::json!({ "causes": [{ "reason": "FieldValueInvalid", "message": "immutable", "field": "metadata.uid" }] });
        let status = status(422, "Invalid").with_details(serde_json::from_value(details).unwrap());
        assert_eq!(ApiError::answered("patch x", &status).label(), "conflict");
    }

    /// The message does not change with the object, so another attempt with another name is no change.
    #[test]
    fn a_full_quota_is_told_without_the_object() {
        let told = |name: &str| {
            let message = format!("windowsmachines \"{name}\" is forbidden: exceeded quota: few, requested: a=1, used: a=2, limited: a=2");
            let status = Status::failure(&message, "Forbidden").with_code(403);
            ApiError::answered(&format!("create windowsmachines lab/{name}"), &status)
        };
        let error = told("pool-1");
        assert_eq!((error.label(), error.retry(), error.is_refusal()), ("quota_exceeded", Retry::Backoff, true));
        assert_eq!(
            error.to_string(),
            "create windowsmachines: exceeded quota: few, requested: a=1, used: a=2, limited: a=2; raise the ResourceQuota, or make room in it"
        );
        assert_eq!(told("pool-2").to_string(), error.to_string());
    }

    #[test]
    fn a_server_that_answers_with_too_much_is_not_told_as_unreachable() {
        let class = |error: TooMuch| ApiError::of("list pods", kube::Error::Service(error.into())).label();
        assert_eq!(class(TooMuch::Large(16 << 20)), "too_large");
        assert_eq!(class(Budget::new(1, "").take(2).unwrap_err().into()), "other");
        assert_eq!(class(TooMuch::Slow(Duration::from_secs(60))), "unreachable");
    }

    #[test]
    fn what_a_change_must_cure_is_not_repeated() {
        assert_eq!(ApiError::Invalid(String::new()).retry(), Retry::OnChange);
        assert_eq!(ApiError::Conflict(String::new()).retry(), Retry::Soon);
        assert_eq!(ApiError::Unreachable(String::new()).retry(), Retry::Backoff);
    }
}
