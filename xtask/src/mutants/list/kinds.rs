//! Guards of the controllers: reads before a write, and orders of two effects.

use super::{Guarded, gone, of};

pub const FILES: &[Guarded] = &[
    of(
        "src/kinds/machine/reconcile.rs",
        &["kinds::machine::"],
        &[gone(
            "a Node goes before its VM",
            "match «node_teardown::tear_down(ctx, object).await?»",
            "{ ask_hypervisor(ctx, object, &owner, target).await?; node_teardown::tear_down(ctx, object).await? }",
        )],
    ),
    of(
        "src/kinds/machine/act.rs",
        &["kinds::machine::"],
        &[
            gone("what is reserved is stored before it is used", "«planned != vm.journal»", "false"),
            gone(
                "a Node that is left goes before the finalizer",
                "return match «delete_left_node(ctx, object).await?»",
                "{ release(ctx, object).await?; delete_left_node(ctx, object).await? }",
            ),
            gone(
                "limits are kept",
                "«room(vm.hypervisor.spec.limits.as_ref(), there, &unreadable, object).map_err(DriverError::Capacity)?»",
                "drop(there)",
            ),
            gone("the seed's channel is checked first", "«vm.driver.check(spec, seed.kind()).await?»", "()"),
        ],
    ),
    of(
        "src/kinds/machine/observe.rs",
        &["kinds::machine::"],
        &[
            gone("an outage that one machine has noticed spares the others a call", "«inventories.failed(vm.place, cause.clone())»", "0"),
            gone("absence is confirmed", "«vm.driver.confirm_absence(&vm.target.key).await?»", "()"),
            gone("the absence of a VM that was made is confirmed", "Goal::Gone || «object.spec.provider_id.is_some()»", "false"),
        ],
    ),
    of(
        "src/kinds/machine/node_completion.rs",
        &["kinds::machine::"],
        &[
            gone("a Node that was recreated is not completed", "«now.metadata.uid == node.metadata.uid» && machine", "true"),
            gone("another's Node is not completed", "&& «machine.is_of(now)»", "true"),
            gone("a copy of a machine completes no Node", "= «ctx.caches.node_of(object)» else", "crate::domain::identity::NodeIdentity::of(object)"),
        ],
    ),
    of(
        "src/kinds/machine/node_teardown.rs",
        &["kinds::machine::"],
        &[
            gone("another's Node is not drained", "filter(|node| «machine.is_of(node)»)", "true"),
            gone(
                "the time for a Node begins with the deletion of its machine",
                "«note_deletion(ctx, object, ctx.management.now())»;",
                "Timestamp::UNIX_EPOCH",
            ),
            gone(
                "the time for a Node is counted by CAPW's own clock",
                "teardown::is_over(«note_deletion(ctx, object, now)», now)",
                "object.metadata.deletion_timestamp.as_ref().map_or(now, |deleted| deleted.0)",
            ),
            gone(
                "a Node goes after its pods",
                "if let Some(decision) = «drain::drain(ctx, object, &workload, &node).await?»",
                "None::<Decision<()>>",
            ),
        ],
    ),
    of(
        "src/kinds/bootstrap_config/data.rs",
        &["kinds::bootstrap_config::"],
        &[
            gone("data is rendered with the token that was found", "let data = if «is_new» {", "true"),
            gone(
                "the version of the API server is read before data is made",
                "match «workload.minor_for(request.version.as_deref().and_then(minor).unwrap_or_default()).await» {",
                "Ok(None)",
            ),
        ],
    ),
    of(
        "src/kinds/bootstrap_config/facts.rs",
        &["kinds::bootstrap_config::"],
        &[
            gone("no kubelet is newer than its API server", "api_server_minor: «self.api_server_minor»,", "None"),
            gone(
                "a Node is in the zone of its machine",
                "let spec = «with_zone(self.object.spec.clone(), self.request.failure_domain.as_deref())»;",
                "self.object.spec.clone()",
            ),
        ],
    ),
    of(
        "src/kinds/bootstrap_config/data_secret.rs",
        &["kinds::bootstrap_config::"],
        &[
            gone("another's Secret is not replaced", "if «is_owned(&found, object) || is_lost(&found, object)»", "true"),
            gone("another's Secret gets no owner", "found.filter(|found| «is_lost(found, object)»)", "true"),
        ],
    ),
    of(
        "src/kinds/bootstrap_config/reconcile.rs",
        &["kinds::bootstrap_config::"],
        &[gone("a Secret goes with its configuration", "&& «!ctx.secret_owners.is(&uid, SecretOwner::Named)»", "false")],
    ),
    of(
        "src/kinds/bootstrap_config/clean_up.rs",
        &["kinds::bootstrap_config::"],
        &[
            gone("the Node of a living machine stays", "|| «!living.contains(&id.vm)»", "true"),
            gone("a Node goes with its Cluster alone", "«!found.cluster.as_ref().is_some_and(|target| target.is_deleting)»", "false"),
        ],
    ),
    of(
        "src/kinds/bootstrap_config/token.rs",
        &["kinds::bootstrap_config::"],
        &[gone("another's token is not extended", "«existing.owner.as_deref() == Some(&owner_of(object).id)»", "true")],
    ),
    of(
        "src/kinds/pool/reconcile.rs",
        &["kinds::pool::"],
        &[
            gone("a pool goes after its configurations", "&& «configs == 0»", "true"),
            gone("a pool knows its Nodes before it decides", "and_then(|_| «ctx.clusters.nodes().listed(cluster)»)", "Ok(true)"),
            gone("a machine that no watch shows is asked for", "«machines::look_for_unseen(ctx, object).await?»", "()"),
            gone("a machine that cannot be read is waited for", "if «!unreadable.is_empty()»", "false"),
        ],
    ),
    of(
        "src/kinds/pool/configs.rs",
        &["kinds::pool::"],
        &[
            gone(
                "the API server is asked for the machine of what goes",
                "if «cluster.get::<WindowsMachine>(&namespace, &name).await?.is_some()»",
                "false",
            ),
            gone("a configuration that was recreated stays", "now.filter(|now| «now.uid() == config.uid()»", "true"),
        ],
    ),
    of(
        "src/kinds/pool/machines.rs",
        &["kinds::pool::"],
        &[
            gone(
                "marks of the autoscaler are read before a removal",
                "«refuse_if_annotations_have_changed(ctx, object, request, found).await?»",
                "()",
            ),
            gone("marks of the autoscaler are read on a Machine that cannot be read", ".chain(«now.unreadable»)", "Vec::new()"),
            gone("a machine of another pool is not taken for an own one", "«owner.uid == uid»", "true"),
            gone("a name without an answer is kept", "if «is_another_try» ||", "false"),
            gone("a machine that was recreated is another", "«found.uid() == made.uid()»", "true"),
            gone("a Node is read before its machine goes for it", "if «!removal::is_because_of_its_node(&machine.member, why)»", "true"),
        ],
    ),
    of(
        "src/kinds/pool/memory.rs",
        &["kinds::pool::memory::", "kinds::pool::reconcile::tests::"],
        &[gone("a removal that no watch shows yet counts", "«self.0.lock().get(pool).is_some_and(|m| m.removed.contains_key(machine))»", "false")],
    ),
    of(
        "src/kinds/pool/observe.rs",
        &["kinds::pool::"],
        &[
            gone("a machine is lost that the pool has made", "«is_marked» &&", "true"),
            gone("a pool's owner is the object with its UID", "«p.metadata.uid.as_deref() == Some(&reference.uid)»", "true"),
            gone("a Machine that cannot be read is there", "&& «machine.name.as_deref().is_some_and(has)»", "false"),
        ],
    ),
    of(
        "src/kinds/pool/hand_over.rs",
        &["kinds::pool::"],
        &[gone("an adoption of a machine is of what was read", "owners, «\"resourceVersion\"»: meta.resource_version", "\"selfLink\"")],
    ),
    of(
        "src/kinds/pool/node_labels.rs",
        &["kinds::pool::"],
        &[
            gone("another's Node gets no labels", "«identity.is_of(node)»", "true"),
            gone(
                "a copy of a machine labels no Node",
                "= «ctx.caches.node_of(&machine.object)» else",
                "crate::domain::identity::NodeIdentity::of(&machine.object)",
            ),
        ],
    ),
    of(
        "src/kinds/hypervisor/reconcile.rs",
        &["kinds::hypervisor::", "kinds::machine::"],
        &[gone("a hypervisor stays for its machines", "&& «!is_used»", "true")],
    ),
    of(
        "src/kinds/hypervisor/observe.rs",
        &["kinds::hypervisor::", "kinds::machine::"],
        &[gone("an endpoint is known before it is believed", "«distrust(object, &endpoint.id, &endpoint.lacks)»", "None::<DriverError>")],
    ),
    of(
        "src/kinds/hypervisor/hypervisors.rs",
        &["kinds::hypervisor::", "kinds::machine::"],
        &[gone("one that cannot be read is there", "None if «unreadable.iter().any(|meta| meta.name.as_deref() == Some(name))»", "false")],
    ),
    of(
        "src/kinds/hypervisor/orphans.rs",
        &["kinds::hypervisor::"],
        &[
            gone(
                "no cache makes a VM an orphan",
                "«ctx.management.cluster.list::<WindowsMachine>(&namespace, None).await?»",
                "Listed { items: ctx.caches.windows_machines.all(&namespace).iter().map(|machine| (**machine).clone()).collect::<Vec<_>>(), unreadable: Vec::new() }",
            ),
            gone("no orphan goes while a machine cannot be read", "|orphan| «unreadable.is_empty()» &&", "true"),
        ],
    ),
    of(
        "src/kinds/control_plane/reconcile.rs",
        &["kinds::control_plane::"],
        &[
            gone(
                "a control plane that goes asks the API server for its Cluster",
                "now = «cluster_now(&ctx.management, &namespace, &name).await?»",
                "ctx.caches.clusters.get(&namespace, &name).map(|cluster| (*cluster).clone())",
            ),
            gone(
                "a control plane that goes asks for a Cluster that no cache has",
                "if «decision.step == ControlPlaneStep::LookAtWindowsSide» {",
                "decision.step == ControlPlaneStep::LookAtWindowsSide && cluster.is_some()",
            ),
            gone("a machine that cannot be read needs the kubeconfig", "let machines = «unreadable» +", "0"),
            gone("a Cluster that names it is its own", "«clusters.into_iter().find(names_it)»", "None::<Arc<Cluster>>"),
        ],
    ),
    of(
        "src/engine/caches.rs",
        &["engine::", "kinds::machine::"],
        &[
            gone("a copy of a machine does not have its Node", "filter(|_| «self.first_with_the_vm_of(object).is_none()»)", "true"),
            gone("a configuration is that of the machine with its UID", "«(Some(&owner.uid) == object.metadata.uid.as_ref())».then_some", "true"),
        ],
    ),
    of(
        "src/engine/written.rs",
        &["engine::"],
        &[gone("no pass works with a cache that lacks our last write", "= «version(cached.meta())»", "None::<(String, u64)>")],
    ),
    of(
        "src/engine/owners.rs",
        &["engine::owners::", "kinds::machine::", "kinds::bootstrap_config::"],
        &[
            gone(
                "a Machine is the object with its UID",
                "caches.machines.get(&namespace, &reference.name).filter(|m| «m.metadata.uid.as_deref() == Some(&reference.uid)»",
                "true",
            ),
            gone(
                "a configuration's machine is the object with its UID",
                "windows_machines.get(&namespace, &reference.name).filter(|m| «m.metadata.uid.as_deref() == Some(&reference.uid)»",
                "true",
            ),
            gone("an annotation joins no cluster that it may not join", "«!may_join(&cluster, self.caches.pool_of(object).as_deref())»", "false"),
            gone("a Node that may be there is waited for", "&& «!self.nodes.are_known(&cluster)»", "false"),
            gone("a configuration joins the cluster of its machine", "«ClusterRef::of(&machine.metadata) == ClusterRef::of_config(object)»", "true"),
            gone("a Cluster that no cache has is asked for", "|| «self.caches.clusters.get(namespace, name).is_some()»", "true"),
            gone("an answer without kinds proves nothing", "if «is_cluster_api_gone(&management.cluster.groups().await?)»", "true"),
        ],
    ),
    of(
        "src/engine/certificate_requests.rs",
        &["engine::certificates::"],
        &[gone(
            "a request that is judged claims its token",
            "«self.claims.entry(expected.token_id).or_insert_with(|| (request.name_any(), key));»",
            "",
        )],
    ),
    of(
        "src/engine/identities.rs",
        &["engine::identities::", "engine::controller::tests::slots::"],
        &[
            gone("another cluster is not taken for the first", "Some(expected) if «expected != found»", "false"),
            gone(
                "no pass waits for the identity of a cluster",
                "if let Err(error) = «self.confirm(cluster, &workload)»",
                "self.identities().wait(|| self.confirm(cluster, &workload)).await",
            ),
        ],
    ),
    of(
        "src/engine/management.rs",
        &["kinds::machine::", "kinds::bootstrap_config::"],
        &[gone("an adoption is of what was read", "\"resourceVersion\": «object.resource_version()»", "None::<String>")],
    ),
    of(
        "src/engine/answers.rs",
        &["engine::"],
        &[gone(
            "another kubeconfig is asked for its cluster",
            "all.get(cluster).filter(|answer| «answer.fingerprint == workload.fingerprint»)",
            "true",
        )],
    ),
    of(
        "src/kinds/windows_cluster/reconcile.rs",
        &["kinds::windows_cluster::"],
        &[gone(
            "what goes asks the API server for its Cluster",
            "«cluster_now(&ctx.management, &name.namespace, cluster).await?.map(Arc::new)»",
            "ctx.caches.clusters.get(&name.namespace, cluster)",
        )],
    ),
    of(
        "src/kinds/windows_cluster/windows_side.rs",
        &["kinds::windows_cluster::"],
        &[gone("what is another's stays", "Some(found) if «taken(&found, owner).is_ok()»", "true")],
    ),
    of(
        "src/kinds/windows_cluster/writes.rs",
        &["kinds::windows_cluster::"],
        &[
            gone("what has changed stays", "resource_version: «text(\"/metadata/resourceVersion\")»", "None"),
            gone("a fight with another writer is slow", "filter(|live| «is_set_back_later(live, COMPONENTS_MANAGER, now)»)", "false"),
        ],
    ),
];
