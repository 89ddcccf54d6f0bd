//! The contract of every driver, kept by this driver.

use std::sync::Arc;

use super::cluster::Cluster;
use super::rig::ProxmoxEndpoint;
use crate::hypervisor::contract;

#[tokio::test]
async fn it_keeps_the_contract() {
    let Some(cluster) = Cluster::start().map(Arc::new) else { return };
    contract::all(|| ProxmoxEndpoint::new(&cluster)).await;
}

#[tokio::test]
async fn it_is_proven() {
    let Some(cluster) = Cluster::start().map(Arc::new) else { return };
    contract::proof::is_proven(&ProxmoxEndpoint::new(&cluster)).await;
}

#[tokio::test]
async fn any_request_may_be_lost() {
    let Some(cluster) = Cluster::start().map(Arc::new) else { return };
    contract::any_request_may_be_lost(|| ProxmoxEndpoint::new(&cluster)).await;
}
