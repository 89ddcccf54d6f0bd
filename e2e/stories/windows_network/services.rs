//! Services of the cluster, and the load balancers that kube-proxy creates for them on a Windows node.

use serde_json::{Value, json};

use super::node::objects;
use crate::linux_side::SERVICES;
use crate::world::wine::WineGuest;
use crate::world::{ControlPlane, Kind, text};

const ENDPOINT_SLICES: Kind = Kind::new("discovery.k8s.io/v1", "endpointslices");

/// Creates a Service with an endpoint elsewhere in the cluster; returns its address.
pub async fn service(cp: &ControlPlane) -> String {
    services(cp, &["web".to_owned()], true).await.remove(0)
}

/// Creates Services with an endpoint elsewhere in the cluster, which is ready or not; returns their addresses.
pub async fn services(cp: &ControlPlane, names: &[String], are_ready: bool) -> Vec<String> {
    let metadata = |name: &str, labels: Value| json!({"name": name, "namespace": "default", "labels": labels});
    let of_name = |name: &String| {
        [
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(name, json!({})), "spec": {"ports": [{"name": "http", "port": 80}]}}),
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata(name, json!({"kubernetes.io/service-name": name})),
                "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": [{"addresses": ["10.244.0.7"], "conditions": {"ready": are_ready}, "nodeName": "linux-1"}]}),
        ]
    };
    cp.apply_objects(&names.iter().flat_map(of_name).collect::<Vec<_>>()).await;
    let mut addresses = Vec::new();
    for name in names {
        assert!(cp.get(ENDPOINT_SLICES, &format!("default/{name}")).await.is_some());
        addresses.push(text(&cp.get(SERVICES, &format!("default/{name}")).await.expect("the Service"), "/spec/clusterIP").to_owned());
    }
    addresses
}

/// The load balancer of a Service.
pub fn balancer(guest: &WineGuest, service: &str) -> Option<Value> {
    let is_its = |balancer: &Value| balancer["FrontendVIPs"] == json!([service]);
    objects(guest, "loadbalancers").into_iter().find(is_its)
}

/// Whether each of these Services has one load balancer that sends from the source VIP.
pub fn are_served(guest: &WineGuest, services: &[String], vip: &str) -> Result<(), String> {
    let balancers = objects(guest, "loadbalancers");
    for service in services {
        let own: Vec<_> = balancers.iter().filter(|balancer| balancer["FrontendVIPs"] == json!([service])).collect();
        match own.as_slice() {
            [balancer] if balancer["SourceVIP"] == json!(vip) => {}
            _ => return Err(format!("for {service}, from {vip}, there are the load balancers {own:#?}")),
        }
    }
    Ok(())
}
