//! The contract of every driver, kept by this driver.

use std::sync::Arc;

use super::rig::VsphereEndpoint;
use super::vcenter::Vcenter;
use crate::hypervisor::contract;

#[tokio::test]
async fn it_keeps_the_contract() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    contract::all(|| VsphereEndpoint::new(&vcenter)).await;
}

#[tokio::test]
async fn it_is_proven() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    contract::proof::is_proven(&VsphereEndpoint::new(&vcenter)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_the_contract_while_it_is_told_of_changes() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    contract::all(|| VsphereEndpoint::told(&vcenter)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_request_may_be_lost_while_it_is_told_of_changes() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    contract::any_request_may_be_lost(|| VsphereEndpoint::told(&vcenter)).await;
}

#[tokio::test]
async fn any_request_may_be_lost() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    contract::any_request_may_be_lost(|| VsphereEndpoint::new(&vcenter)).await;
}

#[tokio::test]
async fn it_keeps_the_contract_with_cds() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    contract::all(|| VsphereEndpoint::with_drive(&vcenter)).await;
}

#[tokio::test]
async fn any_request_may_be_lost_with_cds() {
    let Some(vcenter) = Vcenter::start().map(Arc::new) else { return };
    contract::any_request_may_be_lost(|| VsphereEndpoint::with_drive(&vcenter)).await;
}
