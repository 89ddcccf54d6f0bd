//! Guards of the actions in workload clusters and on hypervisors, and of the clients for them.

use super::{Guarded, gone, of};

pub const FILES: &[Guarded] = &[
    of(
        "src/kube_api/cluster.rs",
        &["kube_api::cluster::"],
        &[
            gone("a patch is of the object that was read", "«set(&mut patch, \"uid\", json!(uid(object)?))»", "()"),
            gone("a status is of what was read", "uid(object)?, \"resourceVersion\": «object.resource_version()»", "None::<String>"),
            gone("a deletion names what was read", "DeleteParams { preconditions: «Some(preconditions)»", "None"),
        ],
    ),
    of(
        "src/kube_api/finalizers.rs",
        &["kube_api::cluster::"],
        &[gone(
            "a finalizer changes what was read",
            "\"finalizers\": finalizers, \"resourceVersion\": «object.resource_version()»",
            "None::<String>",
        )],
    ),
    of(
        "src/kube_api/nodes.rs",
        &["kube_api::nodes::"],
        &[
            gone("a Node of another VM is not deleted", "if «provider_id.is_some_and(is_meant)»", "true"),
            gone("a deletion is of the Node that was read", "uid: «node.metadata.uid.clone()»", "None"),
            gone("a change is of the Node that was read", "\"uid\", json!(«&node.metadata.uid»)", "&None::<String>"),
            gone("a change is of the Node as it was read", "json!(«&node.metadata.resource_version»)", "&None::<String>"),
        ],
    ),
    of(
        "src/kube_api/token.rs",
        &["kube_api::token::"],
        &[
            gone("another's token is not deleted", "«t.owner.as_deref() == Some(owner)»", "true"),
            gone("tokens of others stay", "«token.owner.as_deref() == Some(owner)»", "true"),
            gone("a token that was recreated is not deleted", "uid: «Some(uid.to_owned())»", "None"),
        ],
    ),
    of(
        "src/kube_api/workloads.rs",
        &["kube_api::workloads::"],
        &[
            gone("all clusters share a budget", "«Keeping::of_one(&self.kept)»", "Keeping::default()"),
            gone("a cluster has the budget of all", "of(&found.fingerprint), ..«self.within_budget(found)»", "found"),
            gone("the own cluster has the budget of all", "of(\"in-cluster\"), ..«self.within_budget(found)»", "found"),
        ],
    ),
    of(
        "src/operator/clients.rs",
        &["operator::clients::"],
        &[
            gone("reviews have a rate of their own", "connect(«Rate::new(REVIEWS.0, REVIEWS.1)»)", "Rate::new(qps, burst)"),
            gone("a renewal waits for no turn", "lease: connect(«Rate::new(0, 1)»)", "Rate::new(qps, burst)"),
            gone("the answers of workload clusters are limited", "&«Limits::of_workload(&budget)»", "Limits::of_management()"),
        ],
    ),
    of(
        "src/hypervisor/gates.rs",
        &["hypervisor::observed::"],
        &[
            gone("reads of a hypervisor leave passes to the others", "Gate::new(«caps.reads.min(share)»)", "caps.reads"),
            gone("changes of a hypervisor leave passes to the others", "Gate::new(«caps.changes.min(share)»)", "caps.changes"),
        ],
    ),
    of(
        "src/hypervisor/drivers/simulated/datacenter.rs",
        &["hypervisor::drivers::simulated::"],
        &[gone("a simulated VM of another mark is left alone", "Some(record) if «record.mark != key.owner_mark()»", "false")],
    ),
];
