//! Finds Services that kube-proxy on Windows cannot fully implement (pure). It reads a recording; controllers read no Services of users.
//! <https://kubernetes.io/docs/concepts/services-networking/windows-networking/#load-balancing-and-services>

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use serde::Deserialize;
use serde_json::Value;

use super::objects::Objects;
use super::place::ObjectRef;
use super::windows_pods::Host;
use crate::api::bootstrap_config::WindowsRelease;

/// The most ready endpoints that a Windows load balancer supports.
const MOST_ENDPOINTS: usize = 1024;

/// The default timeout of a Service with session affinity, in seconds. The API server writes this value into the Service.
/// <https://kubernetes.io/docs/reference/networking/virtual-ips/#session-stickiness-timeout>
const DEFAULT_SECONDS: i32 = 10_800;

/// Returns a sentence for each limit that a Service exceeds, sorted by the Services' names. Endpoints are counted if EndpointSlices were recorded.
pub fn beyond_windows(objects: &[Value]) -> Vec<String> {
    let is_on_2019 = Host::joined(objects).iter().any(|host| host.release == WindowsRelease::Server2019);
    let objects = Objects::new(objects);
    let endpoints = ready_endpoints(&objects);
    let mut found = BTreeSet::new();
    for place in objects.of("", "Service") {
        let Ok(service) = Service::deserialize(place.value()) else { continue };
        let object = ObjectRef::of(place.value());
        let count = endpoints.get(&(object.namespace.clone().unwrap_or_default(), object.name.clone())).map_or(0, BTreeSet::len);
        let limits = [
            (count > MOST_ENDPOINTS)
                .then(|| format!("has {count} ready endpoints, and Windows balances at most {MOST_ENDPOINTS}: use several Services")),
            affinity(&service, is_on_2019),
        ];
        found.extend(limits.into_iter().flatten().map(|limit| format!("{object} {limit}")));
    }
    found.into_iter().collect()
}

fn affinity(service: &Service, is_on_2019: bool) -> Option<String> {
    let spec = service.spec.as_ref().filter(|spec| spec.session_affinity.as_deref() == Some("ClientIP"))?;
    if is_on_2019 {
        return Some("has sessionAffinity ClientIP, which nodes with Windows Server 2019 do not know: use Windows Server 2022 or newer".to_owned());
    }
    let seconds = spec.session_affinity_config.as_ref()?.client_ip.as_ref()?.timeout_seconds?;
    let said = format!("has sessionAffinityConfig.clientIP.timeoutSeconds {seconds}, which Windows does not keep: let clients expect no time limit");
    (seconds != DEFAULT_SECONDS).then_some(said)
}

/// The addresses of ready endpoints, by namespace and name of their Service.
fn ready_endpoints(objects: &Objects) -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut endpoints: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for place in objects.of("discovery.k8s.io", "EndpointSlice") {
        let Ok(slice) = EndpointSlice::deserialize(place.value()) else { continue };
        let Some(service) = slice.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/service-name")) else { continue };
        // Each address family has its own load balancer. Windows nodes have the IPv4 load balancer in every network.
        let ready = slice.endpoints.iter().flatten().filter(|endpoint| slice.address_type == "IPv4" && is_ready(endpoint));
        let key = (slice.metadata.namespace.clone().unwrap_or_default(), service.clone());
        endpoints.entry(key).or_default().extend(ready.filter_map(|endpoint| endpoint.addresses.first().cloned()));
    }
    endpoints
}

/// Whether an endpoint is ready. An unknown state counts as ready, as the API documents.
pub fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
    }

    /// Creates a slice of endpoints with these numbers, of which every tenth is not ready.
    fn slice(name: &str, of: &str, numbers: std::ops::Range<usize>, family: &str) -> Value {
        let endpoints = numbers.map(|n| json!({"addresses": [format!("10.244.{}.{}", n / 256, n % 256)], "conditions": {"ready": n % 10 != 0}}));
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family, "endpoints": endpoints.collect::<Vec<_>>(),
            "metadata": {"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": of}},
        })
    }

    fn node(build: &str) -> Value {
        let labels = json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": build, "labels": labels}})
    }

    #[test]
    fn endpoints_are_counted_once_and_only_ready_ones_that_ipv4_reaches() {
        let objects = |most: usize| {
            json!({"apiVersion": "v1", "kind": "List", "items": [
                service("web", json!({})),
                slice("web-a", "web", 0..700, "IPv4"),
                // While an endpoint moves, two slices may contain it.
                slice("web-b", "web", 600..most, "IPv4"),
                slice("web-6", "web", 0..700, "IPv6"),
                slice("other", "other", 0..2000, "IPv4"),
            ]})
        };
        // 114 of the 1138 endpoints are not ready.
        assert_eq!(beyond_windows(&[objects(1138)]), Vec::<String>::new());
        assert_eq!(
            beyond_windows(&[objects(1140)]),
            ["Service shop/web has 1026 ready endpoints, and Windows balances at most 1024: use several Services"]
        );
    }

    #[test]
    fn affinity_has_no_time_limit_and_does_not_exist_on_2019() {
        let sticky = |seconds: i32| json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}});
        let objects = |build: &str| vec![service("as-ever", sticky(10_800)), service("short", sticky(60)), service("none", json!({})), node(build)];
        assert_eq!(
            beyond_windows(&objects("10.0.20348")),
            [
                "Service shop/short has sessionAffinityConfig.clientIP.timeoutSeconds 60, which Windows does not keep: let clients expect no time limit"
            ]
        );
        let on_2019 = beyond_windows(&objects("10.0.17763"));
        assert_eq!(on_2019.len(), 2, "{on_2019:?}");
        assert!(on_2019.iter().all(|limit| limit.ends_with("use Windows Server 2022 or newer")), "{on_2019:?}");
    }
}
