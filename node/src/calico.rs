//! The HNS network that calico-node creates on a node: of type Overlay if Calico's pools use VXLAN, of type L2Bridge with BGP. Calico's endpoint
//! of the node itself has the third address of the node's block, which no pod gets; in an overlay it is the source VIP.
//! <https://github.com/projectcalico/calico/blob/v3.32.1/node/pkg/lifecycle/startup/startup_windows.go> (`ensureNetworkForOS`),
//! <https://github.com/projectcalico/calico/blob/v3.32.1/cni-plugin/pkg/dataplane/windows/dataplane_windows.go> (`SetupVxlanNetwork`); the
//! kube-proxy script of SIG Windows checks the same:
//! <https://github.com/kubernetes-sigs/sig-windows-tools/blob/401ee6fcd8369cd8c293bd361275fdbe6f24ed07/hostprocess/calico/kube-proxy/start.ps1>

use std::fmt::{Display, Formatter};
use std::net::Ipv4Addr;

use serde_json::Value;

use crate::hcn::{self, Kind};
use crate::kube_proxy::NodeNetwork;
use crate::node::Failure;

/// Calico's network on this node.
pub struct Calico<'a, Ask> {
    /// The network's name in HNS.
    pub name: &'a str,
    /// A function that returns all objects of a kind and name from HNS.
    pub ask: Ask,
}

/// The properties that kube-proxy depends on.
#[derive(Debug, PartialEq, Eq)]
pub struct Made {
    /// The network's ID: after a restart of Windows, calico-node recreates the network with another ID.
    id: String,
    source_vip: Option<Ipv4Addr>,
}

impl Display for Made {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.source_vip {
            Some(address) => write!(f, "the overlay {} with the source VIP {address}", self.id),
            None => write!(f, "the bridge {}", self.id),
        }
    }
}

impl<Ask: Fn(Kind, &str) -> Result<Vec<Value>, Failure>> Calico<'_, Ask> {
    fn endpoint(&self) -> String {
        format!("{}_ep", self.name)
    }

    /// The address of Calico's endpoint in this network. Calico sometimes leaves an endpoint of an earlier network, or creates two:
    /// <https://github.com/projectcalico/calico/issues/9142>. The choice must not depend on HNS's order.
    fn address(&self, network: &str) -> Result<Option<Ipv4Addr>, Failure> {
        let endpoints = (self.ask)(Kind::Endpoint, &self.endpoint())?;
        let own = endpoints.iter().filter(|endpoint| text(endpoint, "/HostComputeNetwork").eq_ignore_ascii_case(network));
        Ok(own.filter_map(|endpoint| text(endpoint, "/IpConfigurations/0/IpAddress").parse().ok()).min())
    }
}

impl<Ask: Fn(Kind, &str) -> Result<Vec<Value>, Failure>> NodeNetwork for Calico<'_, Ask> {
    type Made = Made;

    fn awaited(&self) -> String {
        format!("calico-node, which makes the HNS network {} and, for VXLAN, the endpoint {} in it", self.name, self.endpoint())
    }

    fn made(&self) -> Result<Option<Made>, Failure> {
        let networks = (self.ask)(Kind::Network, self.name)?;
        let Some(network) = networks.first() else { return Ok(None) };
        let (id, kind) = (hcn::id(network).to_owned(), hcn::network_type(network));
        if hcn::is_bridge(network) {
            return Ok(Some(Made { id, source_vip: None }));
        }
        if kind.eq_ignore_ascii_case("Overlay") {
            let address = self.address(&id)?;
            return Ok(address.map(|address| Made { id, source_vip: Some(address) }));
        }
        Err(Failure(format!(
            "HNS network {0}: its type is {kind}, but calico-node makes Overlay, for VXLAN, or L2Bridge, for BGP. If it is not Calico's, remove it on the \
             node: `Get-HnsNetwork | Where-Object Name -eq {0} | Remove-HnsNetwork`",
            self.name
        )))
    }

    fn source_vip(&self, made: &Made) -> Result<Option<Ipv4Addr>, Failure> {
        Ok(made.source_vip)
    }

    /// Ignores a network with a missing part: kube-proxy would create a missing source VIP endpoint itself, and calico-node is about to create it.
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/proxy/winkernel/proxier.go> (`newSourceVIP`)
    fn changed(&self, before: &Made) -> Result<Option<String>, Failure> {
        let now = self.made()?;
        if now.as_ref() == Some(before) {
            return Ok(None);
        }
        let now = now.map_or_else(|| format!("no network {}, or one without {}", self.name, self.endpoint()), |now| now.to_string());
        Ok(Some(format!("HNS has {now}, no more {before}: kube-proxy has to start again")))
    }
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Calico's network in an HNS with these objects and others.
    fn calico<'a>(networks: &'a Value, endpoints: &'a Value) -> Calico<'static, impl Fn(Kind, &str) -> Result<Vec<Value>, Failure> + 'a> {
        let ask = move |kind, name: &str| {
            let objects = if kind == Kind::Network { networks } else { endpoints };
            Ok(objects.as_array().unwrap().iter().filter(|object| object["Name"] == name).cloned().collect())
        };
        Calico { name: "Calico", ask }
    }

    fn endpoint(network: &str, address: &str) -> Value {
        json!({"ID": "E", "Name": "Calico_ep", "HostComputeNetwork": network, "IpConfigurations": [{"IpAddress": address, "PrefixLength": 26}]})
    }

    #[test]
    fn the_network_is_there_once_all_of_it_is() {
        let overlay = json!([{"ID": "A", "Name": "External", "Type": "Overlay"}, {"ID": "B", "Name": "Calico", "Type": "Overlay"}]);
        let bridge = json!([{"ID": "B", "Name": "Calico", "Type": "l2bridge"}]);
        let of_others = json!([{"ID": "F", "Name": "web_Calico", "HostComputeNetwork": "B", "IpConfigurations": [{"IpAddress": "10.244.1.3"}]}]);
        for (networks, endpoints, expected) in [
            (&json!([]), json!([]), None),
            (&json!([{"ID": "A", "Name": "External", "Type": "Overlay"}]), json!([endpoint("A", "10.244.1.2")]), None),
            (&overlay, json!([]), None),
            (&overlay, of_others.clone(), None),
            (&overlay, json!([endpoint("OLD", "10.244.9.2")]), None),
            (&overlay, json!([endpoint("B", "")]), None),
            (&overlay, json!([{"ID": "E", "Name": "Calico_ep", "HostComputeNetwork": "B"}]), None),
            (&overlay, json!([endpoint("OLD", "10.244.9.2"), endpoint("b", "10.244.1.2")]), Some("the overlay B with the source VIP 10.244.1.2")),
            (&overlay, json!([endpoint("B", "10.244.1.66"), endpoint("B", "10.244.1.2")]), Some("the overlay B with the source VIP 10.244.1.2")),
            (&bridge, json!([]), Some("the bridge B")),
            (&bridge, json!([endpoint("B", "10.244.1.2")]), Some("the bridge B")),
        ] {
            let made = calico(networks, &endpoints).made().unwrap();
            assert_eq!(made.map(|made| made.to_string()).as_deref(), expected, "{networks} {endpoints}");
        }
    }

    #[test]
    fn a_network_that_calico_does_not_make_is_told_with_the_remedy() {
        let Failure(why) = calico(&json!([{"ID": "B", "Name": "Calico", "Type": "NAT"}]), &json!([])).made().unwrap_err();
        assert!(why.starts_with("HNS network Calico: its type is NAT, ") && why.contains("-eq Calico | Remove-HnsNetwork"), "{why}");
    }

    #[test]
    fn kube_proxy_goes_on_only_in_the_same_network_with_the_same_source_vip() {
        let network = |id: &str, kind: &str| json!([{"ID": id, "Name": "Calico", "Type": kind}]);
        let before = Made { id: "B".into(), source_vip: Some(Ipv4Addr::new(10, 244, 1, 2)) };
        for (networks, endpoints, why) in [
            (network("B", "Overlay"), json!([endpoint("B", "10.244.1.2")]), None),
            (network("C", "Overlay"), json!([endpoint("C", "10.244.1.2")]), Some("HNS has the overlay C with the source VIP 10.244.1.2, no more ")),
            (network("B", "Overlay"), json!([endpoint("B", "10.244.7.2")]), Some("HNS has the overlay B with the source VIP 10.244.7.2, no more ")),
            (network("C", "L2Bridge"), json!([]), Some("HNS has the bridge C, no more ")),
            (network("B", "Overlay"), json!([]), Some("HNS has no network Calico, or one without Calico_ep, no more ")),
            (json!([]), json!([]), Some("HNS has no network Calico, or one without Calico_ep, no more ")),
        ] {
            let said = calico(&networks, &endpoints).changed(&before).unwrap();
            let expected = why.map(|why| format!("{why}the overlay B with the source VIP 10.244.1.2: kube-proxy has to start again"));
            assert_eq!(said, expected, "{networks} {endpoints}");
        }
    }
}
