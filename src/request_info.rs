//! Reads the meaning of a request to an API server from its path and query, in the terms of the API server's own RequestInfo.

use http::{Method, Request};

/// A request for a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestInfo<'a> {
    /// As the audit log names it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// Empty for the core group.
    pub group: &'a str,
    pub version: &'a str,
    pub namespace: Option<&'a str>,
    pub resource: &'a str,
    pub name: Option<&'a str>,
    pub subresource: Option<&'a str>,
}

impl<'a> RequestInfo<'a> {
    /// Reads a request. `None`: it is for no resource, e.g. for `/version` or for the discovery of a group.
    pub fn of<B>(request: &'a Request<B>) -> Option<Self> {
        Self::parse(request.method(), request.uri().path(), request.uri().query().unwrap_or_default())
    }

    /// As [`Self::of`], from the parts of the request.
    pub fn parse(method: &Method, path: &'a str, query: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, resource, tail) = match rest {
            ["namespaces", namespace, resource, tail @ ..] => (Some(*namespace), *resource, tail),
            [resource, tail @ ..] => (None, *resource, tail),
            [] => return None,
        };
        let (name, subresource) = (tail.first().copied(), tail.get(1).copied());
        let is_watch = query.split('&').any(|part| part == "watch=true" || part == "watch=1");
        let verb = match (method.as_str(), name) {
            ("GET", _) if is_watch => "watch",
            ("GET", Some(_)) => "get",
            ("GET", None) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", Some(_)) => "delete",
            ("DELETE", None) => "deletecollection",
            _ => "other",
        };
        Some(Self { verb, group, version, namespace, resource, name, subresource })
    }

    /// Returns the resource with its group and subresource, e.g. `leases.coordination.k8s.io` or `pods/eviction`.
    pub fn full_resource(&self) -> String {
        let mut text = self.resource.to_owned();
        if !self.group.is_empty() {
            text = format!("{text}.{}", self.group);
        }
        if let Some(subresource) = self.subresource {
            text = format!("{text}/{subresource}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_as_the_audit_log_does() {
        let group = "/apis/infrastructure.cluster.x-k8s.io/v1alpha1";
        let machines = "windowsmachines.infrastructure.cluster.x-k8s.io";
        for (method, uri, expected) in [
            ("GET", "/api/v1/namespaces/lab/secrets/a".into(), Some("get secrets".into())),
            ("GET", "/api/v1/namespaces/lab/secrets?limit=500".into(), Some("list secrets".into())),
            ("GET", "/api/v1/nodes?&watch=true&x=1".into(), Some("watch nodes".into())),
            ("GET", format!("{group}/windowsmachines?limit=500"), Some(format!("list {machines}"))),
            ("GET", format!("{group}/namespaces/lab/windowsmachines"), Some(format!("list {machines}"))),
            ("GET", format!("{group}/namespaces/lab/windowsmachines/a"), Some(format!("get {machines}"))),
            ("GET", format!("{group}/namespaces/lab/windowsmachines?&watch=true&timeoutSeconds=45"), Some(format!("watch {machines}"))),
            ("POST", format!("{group}/namespaces/lab/windowsmachines"), Some(format!("create {machines}"))),
            ("PATCH", format!("{group}/namespaces/lab/windowsmachines/a/status"), Some(format!("patch {machines}/status"))),
            ("PUT", format!("{group}/namespaces/lab/windowsmachines/a"), Some(format!("update {machines}"))),
            ("DELETE", "/api/v1/namespaces/lab/secrets/a".into(), Some("delete secrets".into())),
            ("DELETE", "/api/v1/namespaces/lab/secrets".into(), Some("deletecollection secrets".into())),
            ("GET", "/api/v1/namespaces/lab".into(), Some("get namespaces".into())),
            ("GET", "/api/v1/namespaces".into(), Some("list namespaces".into())),
            ("GET", group.into(), None),
            ("GET", "/version".into(), None),
        ] {
            let request = Request::builder().method(method).uri(&uri).body(()).unwrap();
            let found = RequestInfo::of(&request).map(|info| format!("{} {}", info.verb, info.full_resource()));
            assert_eq!(found, expected, "{method} {uri}");
        }
    }

    #[test]
    fn the_place_of_an_object_is_read() {
        let of = |path| RequestInfo::parse(&Method::GET, path, "").map(|info| (info.version, info.namespace, info.name));
        assert_eq!(of("/api/v1/namespaces/lab/secrets/a"), Some(("v1", Some("lab"), Some("a"))));
        assert_eq!(of("/apis/apps/v1/namespaces/lab/daemonsets"), Some(("v1", Some("lab"), None)));
        assert_eq!(of("/api/v1/namespaces/lab"), Some(("v1", None, Some("lab"))));
    }
}
