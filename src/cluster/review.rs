//! Who may read our metrics, as the API server says: TokenReview, then SubjectAccessReview. Answers are kept for a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::{ApiError, request};

/// An answer is asked for again after this time.
const KEPT: Duration = Duration::from_secs(60);
/// Most answers that are kept: tokens come from anyone.
const MOST: usize = 256;

/// What the API server says of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Granted,
    /// It is the token of a user who may not.
    Forbidden,
    /// It is no token of this cluster.
    Unknown,
}

/// Answers, and when they were given.
type Known = HashMap<Vec<u8>, (Access, Instant)>;

/// Asks the API server. Clones share what is known.
#[derive(Clone)]
pub struct Reviews {
    client: Client,
    /// By SHA-256 of token and path.
    known: Arc<Mutex<Known>>,
}

impl Reviews {
    pub fn new(client: Client) -> Self {
        Self { client, known: Arc::default() }
    }

    /// Whether the bearer of the token may GET the path.
    pub async fn may_get(&self, token: &SecretString, path: &str) -> Result<Access, ApiError> {
        let key = Sha256::new().chain_update(token.expose_secret()).chain_update([0]).chain_update(path).finalize().to_vec();
        let now = Instant::now();
        if let Some((access, _)) = self.lock().get(&key).filter(|(_, since)| now.duration_since(*since) < KEPT) {
            return Ok(*access);
        }
        let access = self.ask(token, path).await?;
        let mut known = self.lock();
        known.retain(|_, (_, since)| now.duration_since(*since) < KEPT);
        if known.len() < MOST {
            known.insert(key, (access, now));
        }
        Ok(access)
    }

    async fn ask(&self, token: &SecretString, path: &str) -> Result<Access, ApiError> {
        let spec = TokenReviewSpec { token: token.expose_secret().to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = request("create tokenreviews", api.create(&PostParams::default(), &review)).await?.status.unwrap_or_default();
        let Some(user) = answer.user.filter(|_| answer.authenticated == Some(true)) else { return Ok(Access::Unknown) };
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = request("create subjectaccessreviews", api.create(&PostParams::default(), &review)).await?;
        Ok(if answer.status.is_some_and(|status| status.allowed) { Access::Granted } else { Access::Forbidden })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::mock::{Exchange, Script, refuse, step};
    use serde_json::json;

    const TOKEN: &str = "POST /apis/authentication.k8s.io/v1/tokenreviews";
    const ACCESS: &str = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";

    fn is(user: Option<&str>) -> Exchange {
        let user = user.map(|name| json!({"username": name, "groups": ["scrapers"]}));
        step(TOKEN, json!({"spec": {}, "status": {"authenticated": user.is_some(), "user": user}}))
    }

    fn may(allowed: bool) -> Exchange {
        step(ACCESS, json!({"spec": {}, "status": {"allowed": allowed}}))
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_server_decides_and_is_asked_once_a_minute() {
        let (client, script) = Script::new(vec![is(Some("prometheus")), may(true), is(Some("prometheus")), may(false)]);
        let reviews = Reviews::new(client);
        for _ in 0..3 {
            assert_eq!(reviews.may_get(&"t".to_owned().into(), "/metrics").await, Ok(Access::Granted));
        }
        let asked = &script.seen()[1].body["spec"];
        assert_eq!((&asked["user"], &asked["groups"]), (&json!("prometheus"), &json!(["scrapers"])));
        assert_eq!(asked["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
        tokio::time::advance(KEPT).await;
        assert_eq!(reviews.may_get(&"t".to_owned().into(), "/metrics").await, Ok(Access::Forbidden), "the right was taken away");
    }

    #[tokio::test]
    async fn a_token_of_nobody_is_unknown_and_an_answer_that_is_missing_grants_nothing() {
        let (client, _script) = Script::new(vec![is(None), refuse(TOKEN, 503, "ServiceUnavailable"), is(Some("x")), may(false)]);
        let reviews = Reviews::new(client);
        assert_eq!(reviews.may_get(&"a".to_owned().into(), "/metrics").await, Ok(Access::Unknown));
        assert!(reviews.may_get(&"b".to_owned().into(), "/metrics").await.is_err());
        assert_eq!(reviews.may_get(&"b".to_owned().into(), "/metrics").await, Ok(Access::Forbidden), "asked again: errors are not kept");
    }
}
