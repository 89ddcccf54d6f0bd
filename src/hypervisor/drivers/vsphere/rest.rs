//! The REST API of a vCenter, for functions that the SOAP API lacks. Its session lasts for one search.

use http::{Method, StatusCode};
use serde_json::Value;

use super::answer::unreadable;
use super::client::Client;
use super::connection::Proof;
use super::fault::{Error, unusable_login};
use crate::hypervisor::DriverError;
use crate::hypervisor::wire::Effect;

const SESSION: &str = "/rest/com/vmware/cis/session";

/// A session that has begun.
pub struct Rest<'a> {
    client: &'a Client,
    token: String,
}

impl<'a> Rest<'a> {
    pub async fn begin(client: &'a Client) -> Result<Self, DriverError> {
        let (user, password) = client.session().credentials();
        let answer = send(client, "LoginRest", Method::POST, SESSION, Proof::Password(user, password), None).await?;
        let token = answer.and_then(|value| value.as_str().map(str::to_owned)).ok_or_else(|| unreadable(&"the login began no session"))?;
        Ok(Self { client, token })
    }

    /// Ends the session. The vCenter ends it after some minutes anyway, so a failure does no harm.
    pub async fn end(self) {
        let _ = send(self.client, "LogoutRest", Method::DELETE, SESSION, Proof::Token(&self.token), None).await;
    }

    /// Reads a resource; `None`: the resource does not exist.
    pub async fn get(&self, name: &'static str, path: &str) -> Result<Option<Value>, DriverError> {
        Ok(send(self.client, name, Method::GET, path, Proof::Token(&self.token), None).await?)
    }

    pub async fn post(&self, name: &'static str, path: &str, body: &Value) -> Result<Option<Value>, DriverError> {
        Ok(send(self.client, name, Method::POST, path, Proof::Token(&self.token), Some(body)).await?)
    }
}

/// Sends a request that changes nothing permanent; returns the `value` of the answer.
async fn send(
    client: &Client,
    name: &'static str,
    method: Method,
    path: &str,
    proof: Proof<'_>,
    body: Option<&Value>,
) -> Result<Option<Value>, Error> {
    let connection = client.session().connection();
    let work = async {
        let (status, text) = connection.rest(method, path, proof, body).await.map_err(|lost| Error::from(lost.error(Effect::Reads)))?;
        let said = || serde_json::from_slice::<Value>(&text).map(|value| message(&value)).unwrap_or_default();
        match status {
            StatusCode::OK => Ok(serde_json::from_slice::<Value>(&text).ok().and_then(|mut answer| answer.get_mut("value").map(Value::take))),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::UNAUTHORIZED => Err(unusable_login("the REST API of the vCenter refuses the login").into()),
            StatusCode::FORBIDDEN => {
                let text = format!(
                    "the vCenter says to {name}: {}. Let the user read content libraries: it needs System.Read by a global permission",
                    said()
                );
                Err(DriverError::Denied(text).into())
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY => {
                let text = format!("the REST API of {} answers {status}: its services are starting or have ended", client.server());
                Err(DriverError::Transient(text).into())
            }
            status => Err(DriverError::Invalid(format!("the REST API of {} answers {name} with {status}: {}", client.server(), said())).into()),
        }
    };
    client.wire().read(name, work).await
}

/// The message of an error for people.
fn message(answer: &Value) -> String {
    let messages = answer.pointer("/value/messages").and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<&str> = messages.filter_map(|message| message.get("default_message")?.as_str()).collect();
    if texts.is_empty() { answer.get("type").and_then(Value::as_str).unwrap_or("it does not say why").to_owned() } else { texts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_are_told_in_the_words_of_the_vcenter() {
        let error = json!({"type": "com.vmware.vapi.std.errors.unauthorized", "value": {"messages": [{"args": [], "default_message": "Unable to authorize user", "id": "vapi.security.authorization.invalid"}]}});
        assert_eq!(message(&error), "Unable to authorize user");
        assert_eq!(message(&json!({"type": "com.vmware.vapi.std.errors.error", "value": {"messages": []}})), "com.vmware.vapi.std.errors.error");
        assert_eq!(message(&json!([])), "it does not say why");
    }
}
