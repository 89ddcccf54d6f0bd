//! Story *losses*: a node's HNS is stopped for a while, or loses its load balancers or all its objects, at random and fifty times. Each time
//! everything comes back, with the same source VIP. While HNS stays down, both network programs report it, and how to start it.

use std::fs;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::cluster::Cluster;
use super::node::{FAULT, Programs};
use super::services::{are_served, service};
use super::{SEEN, hundred_services, last_words, linux_side_is_put_right, lose, on_the_network, source_vip};
use crate::linux_side;
use crate::world::{self, Kind, seed, step, text};

const LOSSES: usize = 50;
/// The number of Linux nodes.
const OTHERS: usize = 2;
const STOPPED: &str = "the service is stopped; on the node, `Start-Service hns` starts it";

#[test]
fn what_hns_loses_comes_back() {
    let Some(programs) = Programs::find("windows_network::losses") else { return };
    world::run(async {
        let cluster = Cluster::start("losses", linux_side::RECORDING, 1, programs, linux_side_is_put_right, |_, _| Some(())).await;
        let service = service(&cluster.cp).await;
        let node = cluster.windows_nodes().await.remove(0);
        let (guest, name) = (cluster.guest_of(&node).expect("its guest"), text(&node, "/metadata/name"));
        let is_there = async || on_the_network(&cluster.cp.get(Kind::NODE, name).await.ok_or("no Node")?, &guest, &service, OTHERS);
        cluster.until("the node is on the network", is_there).await;
        let (served, vip) = (hundred_services(&cluster, &node).await, source_vip(&guest).expect("a source VIP"));
        let is_back = async || {
            let fault = guest.read(FAULT).unwrap_or_default();
            if !["", "down 0"].contains(&fault.trim()) {
                return Err(format!("HNS is stopped: {fault}"));
            }
            is_there().await?;
            are_served(&guest, &served, &vip)?;
            // A program notices only the loss of objects that it has seen.
            last_words(&cluster, "flannel-", "containerd has the network").await?;
            last_words(&cluster, "kube-proxy-", SEEN).await
        };
        let mut random = StdRng::seed_from_u64(seed());
        for nth in 1..=LOSSES {
            let lost: &[&str] = match random.random_range(0..3) {
                0 => &[],
                1 => &["loadbalancers"],
                _ => &["loadbalancers", "endpoints", "networks"],
            };
            if lost.is_empty() {
                guest.write(FAULT, format!("down {}", random.random_range(1..=8)).as_bytes());
            }
            lost.iter().for_each(|kind| lose(&guest, kind));
            cluster.until("everything is back", is_back).await;
            step(format!(
                "{nth}: everything is back after HNS {}",
                if lost.is_empty() { "was stopped".to_owned() } else { format!("lost {lost:?}") }
            ));
        }

        guest.write(FAULT, b"");
        cluster.until("everything is back", is_back).await;
        let count = async |pod: &str| cluster.pods.lock().await.logs(pod).matches(STOPPED).count();
        let before = (count("flannel-").await, count("kube-proxy-").await);
        guest.write(FAULT, b"down");
        cluster
            .until("both say that HNS is stopped", async || {
                let now = (count("flannel-").await, count("kube-proxy-").await);
                if now.0 > before.0 && now.1 > before.1 { Ok(()) } else { Err(format!("said so often: {now:?}, before {before:?}")) }
            })
            .await;
        step("HNS stays down, and both programs say so");
        fs::remove_file(guest.path(FAULT)).expect("the fault");
        cluster.until("everything is back", is_back).await;
        step("HNS is started, and everything is back");
    });
}
