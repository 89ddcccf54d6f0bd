//! Decides with the API server who may read our metrics: TokenReview, then SubjectAccessReview. Answers are kept for a minute.
//!
//! Anyone who reaches the port can send tokens: their cost is limited, and granted tokens have a reserved place.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::cluster::request;
use super::error::ApiError;

/// The time after which an answer is requested again.
const KEPT: Duration = Duration::from_secs(60);
/// The most answers of a kind that are kept; beyond that the oldest is dropped.
const MOST: usize = 256;
/// The most reviews at the same time; further places are for tokens that were granted before.
const PLACES: usize = 4;
const PLACES_OF_GRANTED: usize = 1;
/// The most bytes of a token; ServiceAccount tokens have one or two thousand.
const LONGEST: usize = 16 << 10;

/// The API server's decision about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Granted,
    /// The token belongs to a user without the right.
    Forbidden,
    /// The token is unknown in this cluster.
    Unknown,
}

/// SHA-256 of token and path.
type Key = Vec<u8>;
type Review = Shared<BoxFuture<'static, Result<Access, ApiError>>>;

/// The newest answers, and when they were given.
#[derive(Default)]
struct Answers(HashMap<Key, (Access, Instant)>);

impl Answers {
    fn keep(&mut self, key: Key, access: Access, now: Instant) {
        let oldest = self.0.iter().min_by_key(|(_, (_, since))| *since).map(|(key, _)| key.clone());
        if let Some(oldest) = oldest.filter(|_| self.0.len() >= MOST) {
            self.0.remove(&oldest);
        }
        self.0.insert(key, (access, now));
    }
}

#[derive(Default)]
struct Known {
    /// The grants, which are kept after they expire, to recognize tokens that were granted before. Only the API server can add one.
    granted: Answers,
    refused: Answers,
    /// The running reviews; clients with the same key share one.
    running: HashMap<Key, Review>,
}

impl Known {
    /// Returns a recent answer.
    fn answer(&self, key: &Key) -> Option<Access> {
        let (access, since) = self.granted.0.get(key).or_else(|| self.refused.0.get(key))?;
        (since.elapsed() < KEPT).then_some(*access)
    }

    /// Ends a review and stores its answer. Errors are not kept.
    fn end(&mut self, key: Key, answer: &Result<Access, ApiError>) {
        self.running.remove(&key);
        let Ok(access) = answer else { return };
        self.granted.0.remove(&key);
        self.refused.0.remove(&key);
        let answers = if *access == Access::Granted { &mut self.granted } else { &mut self.refused };
        answers.keep(key, *access, Instant::now());
    }
}

/// Sends reviews to the API server. Clones share the answers.
#[derive(Clone)]
pub struct Reviews {
    client: Client,
    known: Arc<Mutex<Known>>,
    places: Arc<Semaphore>,
    places_of_granted: Arc<Semaphore>,
}

impl Reviews {
    pub fn new(client: Client) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { client, known: Arc::default(), places: places(PLACES), places_of_granted: places(PLACES_OF_GRANTED) }
    }

    /// Whether the bearer of the token may GET the path. [`ApiError::Throttled`]: too many other reviews are running, so nothing was sent.
    pub async fn may_get(&self, token: &SecretString, path: &str) -> Result<Access, ApiError> {
        if token.expose_secret().len() > LONGEST {
            return Ok(Access::Unknown);
        }
        let key = Sha256::new().chain_update(token.expose_secret()).chain_update([0]).chain_update(path).finalize().to_vec();
        let review = {
            let mut known = self.known.lock();
            if let Some(access) = known.answer(&key) {
                return Ok(access);
            }
            match known.running.get(&key) {
                Some(review) => review.clone(),
                None => {
                    let place = self.place(known.granted.0.contains_key(&key)).ok_or(ApiError::Throttled { after: Duration::from_secs(1) })?;
                    let review = self.begin(key.clone(), token.clone(), path.to_owned(), place);
                    known.running.insert(key, review.clone());
                    review
                }
            }
        };
        review.await
    }

    fn place(&self, was_granted: bool) -> Option<OwnedSemaphorePermit> {
        let free = |places: &Arc<Semaphore>| places.clone().try_acquire_owned().ok();
        free(&self.places).or_else(|| was_granted.then(|| free(&self.places_of_granted)).flatten())
    }

    /// Starts a review, which continues when its clients disconnect: otherwise clients that come and go could use up the turns of all requests
    /// without holding a place.
    fn begin(&self, key: Key, token: SecretString, path: String, place: OwnedSemaphorePermit) -> Review {
        let reviews = self.clone();
        let review = tokio::spawn(async move {
            let answer = reviews.ask(&token, &path).await;
            reviews.known.lock().end(key, &answer);
            drop(place);
            answer
        });
        review.map(|ended| ended.unwrap_or_else(|error| Err(ApiError::Other(format!("review of a token: {error}"))))).boxed().shared()
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_api::limits::REQUEST_LIMIT;
    use crate::kube_api::mock::{Exchange, Script, hang, refuse, step};
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

    fn token(text: &str) -> SecretString {
        text.to_owned().into()
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_tokens_push_out_no_grant_and_keep_none_from_being_kept() {
        let unknown = || (0..300).map(|_| is(None));
        let steps = [is(Some("prometheus")), may(true)].into_iter().chain(unknown()).chain([is(Some("admin")), may(true)]);
        let (client, _script) = Script::new(steps.collect());
        let reviews = Reviews::new(client);
        assert_eq!(reviews.may_get(&token("good"), "/metrics").await, Ok(Access::Granted));
        for number in 0..300 {
            assert_eq!(reviews.may_get(&token(&format!("junk-{number}")), "/metrics").await, Ok(Access::Unknown));
        }
        for _ in 0..3 {
            assert_eq!(reviews.may_get(&token("good"), "/metrics").await, Ok(Access::Granted), "from before");
            assert_eq!(reviews.may_get(&token("other"), "/metrics").await, Ok(Access::Granted), "from after");
        }
        let known = reviews.known.lock();
        assert_eq!((known.granted.0.len(), known.refused.0.len(), known.running.len()), (2, MOST, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_tokens_is_refused_at_once_and_keeps_no_grant_from_being_renewed() {
        let granted = || [is(Some("prometheus")), may(true)];
        let steps = granted().into_iter().chain((0..PLACES).map(|_| hang(TOKEN))).chain(granted()).chain([is(None)]);
        let (client, script) = Script::new(steps.collect());
        let reviews = Reviews::new(client);
        assert_eq!(reviews.may_get(&token("good"), "/metrics").await, Ok(Access::Granted));
        tokio::time::advance(KEPT).await;
        let junk: Vec<SecretString> = (0..PLACES).map(|number| token(&format!("junk-{number}"))).collect();
        let mut hanging: Vec<_> = junk.iter().map(|junk| Box::pin(reviews.may_get(junk, "/metrics"))).collect();
        while script.seen().len() < 2 + PLACES {
            for review in &mut hanging {
                assert!(futures::poll!(review.as_mut()).is_pending());
            }
            tokio::task::yield_now().await;
        }
        let start = Instant::now();
        let refused = reviews.may_get(&token("new"), "/metrics").await.unwrap_err();
        assert_eq!((refused.label(), start.elapsed()), ("throttled", Duration::ZERO));
        assert_eq!(reviews.may_get(&token("good"), "/metrics").await, Ok(Access::Granted), "it was granted before");
        drop(hanging);
        assert!(reviews.may_get(&token("new"), "/metrics").await.is_err(), "clients that come and go get no more places");
        tokio::time::sleep(REQUEST_LIMIT + Duration::from_secs(1)).await;
        assert_eq!(reviews.may_get(&token("new"), "/metrics").await, Ok(Access::Unknown));
    }

    #[tokio::test]
    async fn clients_with_the_same_token_share_a_request_and_a_long_one_is_not_asked_for() {
        let (client, _script) = Script::new(vec![is(Some("prometheus")), may(true)]);
        let reviews = Reviews::new(client);
        let (good, long) = (token("good"), token(&"x".repeat(LONGEST + 1)));
        let all = futures::future::join_all((0..20).map(|_| reviews.may_get(&good, "/metrics"))).await;
        assert_eq!(all, vec![Ok(Access::Granted); 20]);
        assert_eq!(reviews.may_get(&long, "/metrics").await, Ok(Access::Unknown));
    }
}
