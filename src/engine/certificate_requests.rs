//! The known facts about the certificate requests of the joining nodes of a workload cluster.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::followed::Followed;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::cluster_ref::ClusterRef;
use crate::kinds::bootstrap_config::decide::csr::{Expected, Key, Verdict, is_approved, is_decided, judge, key_of};
use crate::kinds::bootstrap_config::decide::step::token_id;

/// The certificate requests of joining nodes, by workload cluster.
pub type Certificates = Followed<ClusterRequests>;

#[derive(Default)]
pub struct ClusterRequests {
    /// The ids of tokens for which a certificate was issued, and when that was observed.
    issued: HashMap<String, Timestamp>,
    /// The names of requests, by token id.
    requests: HashMap<String, HashSet<String>>,
    /// The refused requests, so that each is reported once.
    pub(super) refused: HashSet<String>,
    /// The approved key, by token id.
    keys: HashMap<String, Key>,
    /// By token id, the request whose approval was sent and may have no answer yet, and its key. Until then no other request of the token is
    /// approved.
    claims: HashMap<String, (String, Key)>,
    /// By name, requests that another approver approved: the node whose name each is for, and its requester.
    pub(super) taken: HashMap<String, (String, String)>,
}

impl ClusterRequests {
    /// Adds the known facts about the machine's token and name.
    fn complete(&self, expected: Expected) -> Expected {
        let taken_by = self.taken.values().find(|(node, _)| *node == expected.host_name).map(|(_, who)| who.clone());
        let claimed = || self.claims.get(&expected.token_id).map(|(_, key)| key);
        let approved_key = self.keys.get(&expected.token_id).or_else(claimed).cloned();
        Expected { approved_key, taken_by, ..expected }
    }

    /// Judges a request. Of two keys for one token that are judged at the same time, only the first is approved.
    pub(super) fn judge(&mut self, request: &CertificateSigningRequest, expected: Expected, node: Option<&Node>) -> Verdict {
        let expected = self.complete(expected);
        let verdict = judge(request, &expected, node);
        if verdict == Verdict::Approve
            && let Some(key) = key_of(request)
        {
            self.claims.entry(expected.token_id).or_insert_with(|| (request.name_any(), key));
        }
        verdict
    }

    /// Stores what a request reveals about its token. Returns `true` if a certificate for the token is observed for the first time.
    pub(super) fn learn(&mut self, request: &CertificateSigningRequest, token: &str, now: Timestamp) -> bool {
        let name = request.name_any();
        self.requests.entry(token.to_owned()).or_default().insert(name.clone());
        if is_approved(request)
            && let Some(key) = key_of(request)
        {
            self.keys.entry(token.to_owned()).or_insert(key);
        } else if is_decided(request) {
            self.claims.retain(|_, (of, _)| *of != name);
        }
        let issued = request.status.as_ref().is_some_and(|s| s.certificate.is_some());
        let first = issued && !self.issued.contains_key(token);
        if first {
            self.issued.insert(token.to_owned(), now);
        }
        first
    }

    /// Stores the key of a request that was approved. A request that no longer exists is forgotten.
    pub(super) fn settle(&mut self, request: &CertificateSigningRequest, token: String, is_approved: bool) {
        match key_of(request).filter(|_| is_approved) {
            Some(key) => drop(self.keys.entry(token).or_insert(key)),
            None => self.forget(&request.name_any()),
        }
    }

    /// Forgets the requests that a complete listing does not contain.
    pub(super) fn forget_all_but(&mut self, listed: &[CertificateSigningRequest]) {
        self.taken.clear();
        self.claims.retain(|_, (of, _)| listed.iter().any(|request| request.name_any() == *of));
    }

    /// Forgets a deleted request, but not the certificate that was issued for it.
    pub(super) fn forget(&mut self, name: &str) {
        self.refused.remove(name);
        self.taken.remove(name);
        self.claims.retain(|_, (of, _)| of != name);
        self.requests.retain(|_, names| {
            names.remove(name);
            !names.is_empty()
        });
    }
}

impl Certificates {
    /// Returns when a certificate for the token of this object was first observed.
    pub fn issued(&self, object: &WindowsBootstrapConfig) -> Option<Timestamp> {
        let cluster = ClusterRef::of_config(object)?;
        self.known(&cluster, |known| known.issued.get(&token_id(object)).copied())?
    }

    /// Returns the names of the requests that used a token.
    pub fn requests_of(&self, cluster: &ClusterRef, token: &str) -> Vec<String> {
        let requests = self.known(cluster, |known| known.requests.get(token).cloned());
        requests.flatten().into_iter().flatten().collect()
    }

    /// Forgets everything about a token whose machine was deleted.
    pub fn forget_token(&self, cluster: &ClusterRef, token: &str) {
        self.known(cluster, |known| {
            known.issued.remove(token);
            known.keys.remove(token);
            known.claims.remove(token);
            for request in known.requests.remove(token).into_iter().flatten() {
                known.refused.remove(&request);
            }
        });
    }
}
