//! The answer and the write of each call, also when the call is repeated or overtaken, or its answer is lost.

use prost::Message;
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

use super::world::{Fault, POOL, Shared, machine, node, served, successor};
use crate::api::bootstrap_config::{BUILD_LABEL, HYPER_V_LABEL};
use crate::autoscaler::wire::cloud_provider_client::CloudProviderClient;
use crate::autoscaler::wire::instance_status::InstanceState;
use crate::autoscaler::wire::*;

type Client = CloudProviderClient<Channel>;

async fn target(client: &mut Client) -> i32 {
    client.node_group_target_size(NodeGroupTargetSizeRequest { id: POOL.into() }).await.unwrap().into_inner().target_size
}

async fn increase(client: &mut Client, delta: i32) -> Result<(), Code> {
    client.node_group_increase_size(NodeGroupIncreaseSizeRequest { delta, id: POOL.into() }).await.map(drop).map_err(|s| s.code())
}

async fn decrease(client: &mut Client, delta: i32) -> Result<(), Code> {
    client.node_group_decrease_target_size(NodeGroupDecreaseTargetSizeRequest { delta, id: POOL.into() }).await.map(drop).map_err(|s| s.code())
}

async fn delete(client: &mut Client, names: &[&str]) -> Result<(), Code> {
    let nodes = names.iter().map(|name| node(name)).collect();
    client.node_group_delete_nodes(NodeGroupDeleteNodesRequest { nodes, id: POOL.into() }).await.map(drop).map_err(|s| s.code())
}

#[tokio::test]
async fn what_is_there() {
    let shared = Shared::new(1);
    shared.with(|w| {
        w.machines.push(machine("full", "Ready", "False", "NoCapacity"));
        w.machines.push(machine("wrong", "Ready", "False", "ImageMissing"));
        w.machines.push(machine("cut", "Ready", "False", "HypervisorUnreachable"));
        w.machines.push(machine("lost", "NodeJoined", "False", "NodeNeverJoined"));
        let mut going = machine("going", "NodeJoined", "True", "Joined");
        going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        w.machines.push(going);
        w.shown["spec"]["replicas"] = json!(5);
    });
    let (running, mut client) = served(&shared).await;
    client.refresh(RefreshRequest {}).await.unwrap();
    let groups = client.node_groups(NodeGroupsRequest {}).await.unwrap().into_inner().node_groups;
    assert_eq!(groups.iter().map(|g| (g.id.as_str(), g.min_size, g.max_size)).collect::<Vec<_>>(), [(POOL, 0, 5)]);
    assert_eq!(target(&mut client).await, 5);

    let instances = client.node_group_nodes(NodeGroupNodesRequest { id: POOL.into() }).await.unwrap().into_inner().instances;
    let seen: Vec<(InstanceState, String, i32)> = instances
        .iter()
        .map(|instance| {
            let status = instance.status.as_ref().unwrap();
            let error = status.error_info.clone().unwrap_or_default();
            (status.instance_state(), error.error_code, error.instance_error_class)
        })
        .collect();
    use InstanceState::{InstanceCreating as Creating, InstanceDeleting as Deleting, InstanceRunning as Running};
    // By name: cut, full, going, lost, m0, wrong.
    let expected = [
        (Creating, "", 0),
        (Creating, "NoCapacity", 1),
        (Deleting, "", 0),
        (Creating, "NodeNeverJoined", 99),
        (Running, "", 0),
        (Creating, "ImageMissing", 99),
    ];
    assert_eq!(seen, expected.map(|(state, code, class)| (state, code.to_owned(), class)));
    assert_eq!(instances[4].id, node("m0").provider_id, "the Node and the instance have one identity");

    for (asked, group) in [(node("m0"), POOL), (node("full"), POOL), (ExternalGrpcNode { provider_id: "aws:///x/m0".into(), ..node("m0") }, "")] {
        let answer = client.node_group_for_node(NodeGroupForNodeRequest { node: Some(asked) }).await.unwrap().into_inner();
        assert_eq!(answer.node_group.unwrap().id, group);
    }
    assert!(client.get_available_gpu_types(GetAvailableGpuTypesRequest {}).await.unwrap().into_inner().gpu_types.is_empty());
    assert!(!client.gpu_label(GpuLabelRequest {}).await.unwrap().into_inner().label.is_empty());
    client.cleanup(CleanupRequest {}).await.unwrap();
    assert_eq!(client.pricing_node_price(PricingNodePriceRequest::default()).await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(client.pricing_pod_price(PricingPodPriceRequest::default()).await.unwrap_err().code(), Code::Unimplemented);
    let text = running.metrics.text();
    for line in ["capw_autoscaler_calls_total{call=\"NodeGroupForNode\",code=\"ok\"} 3", "{call=\"PricingPodPrice\",code=\"unimplemented\"} 1"] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

/// A page of `docs/` shows the same numbers for this machine.
#[tokio::test]
async fn the_next_node() {
    let shared = Shared::new(0);
    let (_running, mut client) = served(&shared).await;
    let id = || NodeGroupTemplateNodeInfoRequest { id: POOL.into() };
    let bytes = client.node_group_template_node_info(id()).await.unwrap().into_inner().node_bytes;
    let seen = node::Node::decode(&bytes[..]).unwrap();
    insta::assert_debug_snapshot!(seen);

    // The labels that RuntimeClasses select.
    shared.with(|w| w.shown["spec"]["template"]["bootstrap"] = json!({"windowsRelease": "2025", "windows": {"hyperVIsolation": true}}));
    let bytes = client.node_group_template_node_info(id()).await.unwrap().into_inner().node_bytes;
    let labels = node::Node::decode(&bytes[..]).unwrap().metadata.unwrap().labels;
    for (label, value) in [(BUILD_LABEL, "10.0.26100"), (HYPER_V_LABEL, "true")] {
        assert_eq!(labels.get(label).map(String::as_str), Some(value), "{label}");
    }

    for (pods_per_node, expected) in [(Some(251), "30"), (Some(12), "12")] {
        shared.with(|w| w.pods_per_node = pods_per_node);
        let bytes = client.node_group_template_node_info(id()).await.unwrap().into_inner().node_bytes;
        let status = node::Node::decode(&bytes[..]).unwrap().status.unwrap();
        for amounts in [status.capacity, status.allocatable] {
            assert_eq!(amounts["pods"].string.as_deref(), Some(expected), "{pods_per_node:?}");
        }
    }

    shared.with(|w| w.shown["spec"]["template"]["machine"]["memory"] = json!("2Gi"));
    let refused = client.node_group_template_node_info(id()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("give the machine more memory"), "{}", refused.message());
}

#[tokio::test]
async fn options_only_where_a_machine_may_take_longer_than_the_autoscaler_waits() {
    let shared = Shared::new(0);
    let (_running, mut client) = served(&shared).await;
    for (waits, raised) in [(900, Some(2700)), (2700, None), (3600, None)] {
        let defaults = NodeGroupAutoscalingOptions {
            scale_down_utilization_threshold: 0.5,
            max_node_provision_duration: Some(prost_types::Duration { seconds: waits, nanos: 0 }),
            scale_down_unneeded_duration: Some(prost_types::Duration { seconds: 7, nanos: 0 }),
            ..NodeGroupAutoscalingOptions::default()
        };
        let request = NodeGroupAutoscalingOptionsRequest { id: POOL.into(), defaults: Some(defaults) };
        let answer = client.node_group_get_options(request).await.unwrap().into_inner().node_group_autoscaling_options;
        let expected = raised.map(|seconds| NodeGroupAutoscalingOptions {
            max_node_provision_duration: Some(prost_types::Duration { seconds, nanos: 0 }),
            ..defaults
        });
        assert_eq!(answer, expected);
    }
}

#[tokio::test]
async fn more_is_asked_for_once_however_often_it_is_said() {
    let shared = Shared::new(1);
    let (running, mut client) = served(&shared).await;
    assert_eq!(target(&mut client).await, 1);
    assert_eq!(increase(&mut client, 2).await, Ok(()));
    assert_eq!(increase(&mut client, 2).await, Ok(()), "a repetition");
    assert_eq!(shared.replicas(), 3);
    // The watch is behind; the answer is not.
    assert_eq!(target(&mut client).await, 3);
    assert_eq!(increase(&mut client, 3).await, Err(Code::FailedPrecondition), "above the most");
    assert_eq!(increase(&mut client, 0).await, Err(Code::InvalidArgument));
    shared.show();
    assert_eq!(increase(&mut client, 2).await, Ok(()), "after a look, it is another wish");
    assert_eq!((shared.replicas(), shared.with(|w| w.writes)), (5, 2));
    successor(&running, &shared);
    assert_eq!(target(&mut client).await, 3, "the new leader's watch is behind");
    assert_eq!(increase(&mut client, 2).await, Ok(()), "so what it said is what counts");
    assert_eq!(shared.replicas(), 5);
}

#[tokio::test]
async fn an_answer_that_was_lost_doubles_nothing_and_a_request_that_was_lost_loses_nothing() {
    for fault in [Fault::AnswerLost, Fault::RequestLost] {
        let shared = Shared::new(3);
        let (_running, mut client) = served(&shared).await;
        target(&mut client).await;
        shared.with(|w| w.faults.push_back(fault));
        assert_eq!(increase(&mut client, 2).await, Err(Code::Unavailable));
        assert_eq!(increase(&mut client, 2).await, Ok(()));
        assert_eq!(shared.replicas(), 5, "{fault:?}");
        shared.show();
        shared.with(|w| w.faults.push_back(fault));
        assert_eq!(delete(&mut client, &["m0", "m2"]).await, Err(Code::Unavailable));
        assert_eq!(delete(&mut client, &["m0", "m2"]).await, Ok(()));
        assert_eq!((shared.replicas(), shared.named().as_str()), (3, "m0,m2"), "{fault:?}");
    }
}

#[tokio::test]
async fn who_was_overtaken_checks_again() {
    let shared = Shared::new(3);
    let (_running, mut client) = served(&shared).await;
    target(&mut client).await;
    shared.with(|w| w.faults.extend([Fault::Overtaken, Fault::Overtaken]));
    assert_eq!(increase(&mut client, 1).await, Ok(()));
    assert_eq!((shared.replicas(), shared.with(|w| w.writes)), (4, 1));
    shared.with(|w| w.faults.extend([Fault::Overtaken; 9]));
    assert_eq!(delete(&mut client, &["m0"]).await, Err(Code::Aborted));
    assert_eq!((shared.replicas(), shared.named().as_str()), (4, ""));
}

#[tokio::test]
async fn a_node_that_names_the_provider_id_of_another_machine_removes_nothing() {
    let shared = Shared::new(2);
    let (_running, mut client) = served(&shared).await;
    let impostor = ExternalGrpcNode { name: "m0".into(), ..node("m1") };
    let group = client.node_group_for_node(NodeGroupForNodeRequest { node: Some(impostor.clone()) }).await.unwrap().into_inner();
    assert_eq!(group.node_group.unwrap().id, "", "it is in no group");
    let removed = client.node_group_delete_nodes(NodeGroupDeleteNodesRequest { nodes: vec![impostor], id: POOL.into() }).await;
    assert_eq!((removed.map(drop).map_err(|s| s.code()), shared.with(|w| w.writes)), (Err(Code::NotFound), 0));
    // An instance without a Node: the autoscaler uses its identity as the name.
    let id = node("m1").provider_id;
    let placeholder = ExternalGrpcNode { name: id.clone(), provider_id: id, ..ExternalGrpcNode::default() };
    client.node_group_delete_nodes(NodeGroupDeleteNodesRequest { nodes: vec![placeholder], id: POOL.into() }).await.unwrap();
    assert_eq!(shared.named(), "m1");
}

#[tokio::test]
async fn the_named_machines_go_and_no_others() {
    let shared = Shared::new(3);
    let (running, mut client) = served(&shared).await;
    assert_eq!(delete(&mut client, &["m1"]).await, Ok(()));
    assert_eq!((shared.replicas(), shared.named().as_str()), (2, "m1"));
    successor(&running, &shared);
    assert_eq!(delete(&mut client, &["m1"]).await, Ok(()), "it leaves already");
    assert_eq!(delete(&mut client, &["m0", "stranger"]).await, Err(Code::NotFound));
    assert_eq!((shared.replicas(), shared.named().as_str(), shared.with(|w| w.writes)), (2, "m1", 1), "a stranger changed something");
    shared.show();
    shared.with(|w| w.machines.retain(|m| m.metadata.name.as_deref() != Some("m1")));
    assert_eq!(delete(&mut client, &["m2"]).await, Ok(()));
    assert_eq!((shared.replicas(), shared.named().as_str()), (1, "m2"), "who is gone is no longer named");
    shared.with(|w| w.pool["spec"]["autoscaling"]["minReplicas"] = json!(1));
    assert_eq!(delete(&mut client, &["m0"]).await, Err(Code::FailedPrecondition), "below the least");
    assert_eq!((shared.replicas(), shared.named().as_str()), (1, "m2"));
}

#[tokio::test]
async fn only_what_is_not_there_is_taken_back() {
    let shared = Shared::new(2);
    shared.with(|w| w.pool["spec"]["replicas"] = json!(5));
    shared.show();
    let (_running, mut client) = served(&shared).await;
    target(&mut client).await;
    assert_eq!(decrease(&mut client, 1).await, Err(Code::InvalidArgument));
    assert_eq!(decrease(&mut client, -4).await, Err(Code::FailedPrecondition), "two are there");
    assert_eq!(decrease(&mut client, -3).await, Ok(()));
    assert_eq!(decrease(&mut client, -3).await, Ok(()), "a repetition");
    assert_eq!((shared.replicas(), shared.with(|w| w.writes)), (2, 1));
}

#[tokio::test]
async fn who_does_not_lead_and_what_is_not_to_be_scaled() {
    let shared = Shared::new(1);
    let (running, mut client) = served(&shared).await;
    for (field, value) in [
        ("/spec/paused", json!(true)),
        ("/spec/autoscaling", json!(null)),
        ("/metadata/annotations", json!({"cluster.x-k8s.io/paused": ""})),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/metadata/ownerReferences", json!([{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "p", "uid": "u"}])),
    ] {
        shared.show();
        shared.with(|w| {
            let (parent, key) = field.rsplit_once('/').unwrap();
            w.shown.pointer_mut(parent).unwrap()[key] = value;
        });
        assert!(client.node_groups(NodeGroupsRequest {}).await.unwrap().into_inner().node_groups.is_empty(), "{field}");
        assert_eq!(increase(&mut client, 1).await, Err(Code::NotFound), "{field}");
    }
    shared.show();
    for id in ["", "windows", "lab/other", "other/windows"] {
        let code = client.node_group_nodes(NodeGroupNodesRequest { id: id.into() }).await.unwrap_err().code();
        assert!([Code::InvalidArgument, Code::NotFound].contains(&code), "{id}: {code}");
    }
    running.handle.close();
    assert_eq!(client.refresh(RefreshRequest {}).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(increase(&mut client, 1).await, Err(Code::Unavailable));
    assert_eq!(delete(&mut client, &["m0"]).await, Err(Code::Unavailable));
    assert_eq!(shared.replicas(), 1);
}
