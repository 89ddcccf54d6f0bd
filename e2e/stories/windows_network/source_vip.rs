//! Story *source VIP*: while pods come and go at random, until no address is left, and kube-proxy restarts repeatedly, its address stays
//! reserved. The real host-local.exe assigns the addresses of both.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};

use super::cluster::Cluster;
use super::node::Programs;
use super::pod::host_local;
use super::services::{balancer, service};
use super::{NETWORK, kube_proxy_ends, linux_side_is_put_right, source_vip};
use crate::linux_side;
use crate::world::{self, seed, step, text};

const CALLS: usize = 1_000;
const RESTARTS: usize = 10;
/// Addresses of a /24 except network, gateway, broadcast and the source VIP.
const MOST_PODS: usize = 252;

#[test]
fn no_pod_ever_has_the_source_vip() {
    let Some(programs) = Programs::find("windows_network::source_vip") else { return };
    world::run(async {
        let cluster = Cluster::start("vip", linux_side::RECORDING, 1, programs, linux_side_is_put_right, |_, _| Some(())).await;
        let service = service(&cluster.cp).await;
        let node = cluster.windows_nodes().await.remove(0);
        let guest = cluster.guest_of(&node).expect("its guest");
        let is_served = async || balancer(&guest, &service).map(drop).ok_or_else(|| "the Service has no load balancer".to_owned());
        cluster.until("the node is on the network", is_served).await;
        let vip = source_vip(&guest).expect("a source VIP");

        let mut random = StdRng::seed_from_u64(seed());
        let mut pods: BTreeMap<String, String> = BTreeMap::new();
        let (mut most, subnet) = (0, text(&node, "/spec/podCIDR"));
        for nth in 0..CALLS {
            if nth % (CALLS / RESTARTS) == 0 {
                kube_proxy_ends(&cluster, &guest, &service).await;
                assert_eq!(source_vip(&guest).as_ref(), Some(&vip), "the source VIP stays the same");
                step(format!("kube-proxy was started again beside {} pods", pods.len()));
            }
            let leaving = pods.keys().choose(&mut random).filter(|_| random.random_ratio(1, 4)).cloned();
            if let Some(pod) = leaving {
                host_local(&guest, "DEL", &pod, NETWORK, subnet).expect("its address is given back");
                pods.remove(&pod);
                continue;
            }
            match host_local(&guest, "ADD", &format!("pod-{nth}"), NETWORK, subnet) {
                Ok(address) => {
                    let address = address.expect("an address");
                    assert_ne!(address, vip, "a pod has the source VIP");
                    assert!(!pods.values().any(|other| *other == address), "two pods have {address}");
                    pods.insert(format!("pod-{nth}"), address);
                }
                Err(said) => assert!(pods.len() == MOST_PODS && said.contains("no IP addresses available"), "{} pods: {said}", pods.len()),
            }
            most = most.max(pods.len());
        }
        assert_eq!(most, MOST_PODS, "all addresses were given out");
    });
}
