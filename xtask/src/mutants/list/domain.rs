//! Guards of the pure decisions.

use super::{Guarded, gone, of};

pub const FILES: &[Guarded] = &[
    of(
        "src/domain/gate.rs",
        &["kinds::machine::decide::", "kinds::bootstrap_config::decide::"],
        &[
            gone("what has no owner yet is not written", "«owner.is_none() && !deleting»", "false"),
            gone("what goes without our finalizer is not written", "«deleting && !ours»", "false"),
            gone("nothing is done with what is paused", "match «paused(meta, cluster.and_then(TargetCluster::paused_name).as_deref())»", "None"),
        ],
    ),
    of(
        "src/domain/owner.rs",
        &["domain::owner::"],
        &[
            gone("an owner is the object with its UID", "«machine.metadata.uid.as_deref() == Some(&owner.uid)»", "true"),
            gone("CAPW's own cluster is joined through a pool alone", "«cluster.source != ClusterSource::InCluster» ||", "true"),
        ],
    ),
    of(
        "src/domain/identity.rs",
        &["domain::identity::", "engine::caches::"],
        &[
            gone("a Node of another name is not the machine's", "«node.metadata.name.as_deref() == Some(self.name.as_str())»", "true"),
            gone("a Node of another VM is not the machine's", "«said == Some(&self.provider_id.to_string())»", "true"),
            gone("of two objects with one VM, the copy is the second", "«rank(one) <= rank(other)»", "true"),
        ],
    ),
    of(
        "src/kinds/machine/decide/step.rs",
        &["kinds::machine::decide::", "kinds::machine::"],
        &[
            gone("a copy of a machine makes no VM", "if let Some(twin) = «s.twin»", "None"),
            gone("a copy that goes takes no VM with it", "«s.twin.is_some()»", "false"),
            gone("Windows is no control plane", "«owner.is_control_plane»", "false"),
            gone("a VM waits for its cluster's infrastructure", "«!provisioned && !cluster.infrastructure_provisioned»", "false"),
        ],
    ),
    of(
        "src/kinds/machine/decide/placement.rs",
        &["kinds::machine::decide::"],
        &[gone("a machine goes to no hypervisor that its cluster may not use", "«!self.cluster.may_use(name)»", "false")],
    ),
    of(
        "src/kinds/machine/decide/vm.rs",
        &["kinds::machine::decide::"],
        &[
            gone("a VM made for a changed label is not forgotten", "«in_doubt(what, &s.target.hypervisor)»", "Decision::new(VmStep::Release)"),
            gone(
                "a VM that was removed from outside is not made again",
                "Some(id) => «removed(&id, &s.target.hypervisor)»",
                "Decision::new(VmStep::Create)",
            ),
            gone("parts that are left of a VM are not made a VM again", "«!vm.vm && provider_id(s.object).is_some()»", "false"),
            gone("a VM runs with its seed", "«vm.seeded != Seeded::No || has_run»", "true"),
            gone("a VM that has run needs no seed", "«provisioned || provider_id(s.object).is_some()»", "false"),
            gone("the seed stays until the Node has joined", "&& «condition::is_true(conditions, ConditionType::NodeJoined)»", "true"),
            gone("the seed stays until the guest is done", "&& «done»", "true"),
            gone("a guest with pods is asked to shut down", "«late || !condition::is_true(conditions, ConditionType::NodeJoined)»", "true"),
        ],
    ),
    of(
        "src/bootstrap/check/validate.rs",
        &["bootstrap::stages::"],
        &[
            gone("a path holds no control character", r#"«c.is_control()» || "<>"#, "false"),
            gone("the name of a service holds no control character", r#"«c.is_control()» || "/"#, "false"),
        ],
    ),
    of(
        "src/kinds/bootstrap_config/decide/csr.rs",
        &["kinds::bootstrap_config::decide::csr::"],
        &[
            gone("a request that is decided is not judged", "JOIN_SIGNER || «is_decided(request)»", "false"),
            gone("another token gets no certificate", "if «!ours»", "false"),
            gone("a request asks for what a kubelet asks for", "«check(request, &content, &node_user)»", "Ok(())"),
            gone("a token gets one certificate", "«first(expected, &content)»", "Ok(())"),
            gone("the name of another's Node is not given away", "«bound(expected, node)»", "Ok(())"),
        ],
    ),
    of(
        "src/kinds/pool/decide/removal.rs",
        &["kinds::pool::decide::removal::"],
        &[
            gone("a Machine goes after core looks after it", "«has_finalizer(&machine.metadata, MACHINE_FINALIZER)»", "true"),
            gone("what leaves is not removed again", "«is_leaving && (standalone || machine.is_some() || is_deleted)»", "false"),
            gone("another's Node refutes nothing", "«machine.is_of(node)»", "true"),
            gone("a Node that is not Ready refutes nothing", "&& «(is_ready(node) || (why == Why::Failed && member.had_no_node()))»", "true"),
        ],
    ),
    of(
        "src/domain/node/teardown.rs",
        &["domain::node::teardown::", "kinds::machine::"],
        &[gone("core's machine waits for its cluster", "«elapsed(since, now) >= CORE»", "true")],
    ),
    of(
        "src/kinds/hypervisor/decide/listing.rs",
        &["kinds::hypervisor::decide::", "kinds::hypervisor::"],
        &[gone("another endpoint is not believed", "known.filter(|known| «*known != id»)", "false")],
    ),
    of(
        "src/kinds/hypervisor/decide/orphans.rs",
        &["kinds::hypervisor::decide::", "kinds::hypervisor::"],
        &[
            gone("a new orphan is not reported", "«now.duration_since(self.since) >= REPORTED_AFTER»", "true"),
            gone("a new orphan is not removed", "«now.duration_since(self.since) >= REMOVED_AFTER»", "true"),
            gone("an orphan is removed where that is wanted", "«object.spec.orphans == Orphans::Remove» &&", "true"),
            gone("a hypervisor that goes removes no orphan", "«object.metadata.deletion_timestamp.is_none()» && now", "true"),
            gone("a VM of another namespace is no orphan", "«is_here» &&", "true"),
        ],
    ),
];
