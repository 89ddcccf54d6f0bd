//! Checks whether the credentials of a kubeconfig have the rights that they need.

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::{Api, PostParams};

use super::workload::{Workload, WorkloadError};

/// The most running reviews for one kubeconfig: fewer than CAPW may send to its API server at the same time.
const AT_ONCE: usize = 8;

/// One right to check. Empty texts mean core group, no subresource, cluster scope, any name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Right<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl std::fmt::Display for Right<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        for (before, text) in [("/", self.subresource), (".", self.group), (" ", self.name), (" in namespace ", self.namespace)] {
            if !text.is_empty() {
                write!(f, "{before}{text}")?;
            }
        }
        Ok(())
    }
}

impl Workload {
    /// Returns the rights that the credentials lack. Sends one request for each, a few of them at a time.
    pub async fn lacks<'a>(&self, rights: &[Right<'a>]) -> Result<Vec<Right<'a>>, WorkloadError> {
        let asked: Vec<_> = rights.iter().map(|right| self.may(*right)).collect();
        let allowed: Vec<bool> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
        Ok(rights.iter().zip(allowed).filter(|(_, allowed)| !allowed).map(|(right, _)| *right).collect())
    }

    async fn may(&self, right: Right<'_>) -> Result<bool, WorkloadError> {
        let text = |t: &str| (!t.is_empty()).then(|| t.to_owned());
        let attributes = ResourceAttributes {
            verb: text(right.verb),
            group: text(right.group),
            resource: text(right.resource),
            subresource: text(right.subresource),
            namespace: text(right.namespace),
            name: text(right.name),
            ..Default::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() },
            ..Default::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = self.call("create selfsubjectaccessreviews", api.create(&PostParams::default(), &review)).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::mock::{Script, step};
    use super::*;

    #[tokio::test]
    async fn rights_that_are_lacking_are_listed() {
        let path = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let answer = |allowed: bool| step(path, json!({ "metadata": {}, "spec": {}, "status": { "allowed": allowed } }));
        let (client, script) = Script::new(vec![answer(true), answer(false)]);
        let workload = Workload::of(client);
        let list = Right { verb: "list", resource: "nodes", ..Default::default() };
        let approve = Right {
            verb: "update",
            group: "certificates.k8s.io",
            resource: "certificatesigningrequests",
            subresource: "approval",
            ..Default::default()
        };
        assert_eq!(workload.lacks(&[list, approve]).await.unwrap(), [approve]);
        assert_eq!(approve.to_string(), "update certificatesigningrequests/approval.certificates.k8s.io");
        assert_eq!(script.seen()[1].body["spec"]["resourceAttributes"]["subresource"], "approval");
    }
}
