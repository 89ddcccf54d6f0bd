//! The guards that are taken away: preconditions, reads of an owner mark, and orders of two effects. What a plan of `controllers/model` has to notice
//! is in `src/guards.rs` instead.

/// The guards of one file.
pub struct Guarded {
    pub file: &'static str,
    /// What the names of the tests have in them that have to notice.
    pub tests: &'static [&'static str],
    pub guards: &'static [Guard],
}

/// One of them.
pub struct Guard {
    /// What holds as long as it is there.
    pub keeps: &'static str,
    /// What is in the file once. The guard is an expression, between « and »; around it is only what tells it from others.
    pub text: &'static str,
    /// The expression in its place.
    pub without: &'static str,
}

/// A guard that is gone when `without` is in its place.
pub const fn gone(keeps: &'static str, text: &'static str, without: &'static str) -> Guard {
    Guard { keeps, text, without }
}

const fn of(file: &'static str, tests: &'static [&'static str], guards: &'static [Guard]) -> Guarded {
    Guarded { file, tests, guards }
}

/// All of them.
pub const FILES: &[Guarded] = &[
    of(
        "src/lifecycle/mod.rs",
        &["lifecycle::machine::", "lifecycle::bootstrap_config::"],
        &[
            gone("what has no owner yet is not written", "«owner.is_none() && !deleting»", "false"),
            gone("what goes without our finalizer is not written", "«deleting && !ours»", "false"),
            gone("nothing is done with what is paused", "match «paused(meta, cluster.and_then(TargetCluster::paused_name).as_deref())»", "None"),
        ],
    ),
    of(
        "src/lifecycle/owner.rs",
        &["lifecycle::owner::"],
        &[
            gone("an owner is the object with its UID", "«machine.metadata.uid.as_deref() == Some(&owner.uid)»", "true"),
            gone("CAPW's own cluster is joined through a pool alone", "«cluster.source != ClusterSource::InCluster» ||", "true"),
        ],
    ),
    of(
        "src/lifecycle/identity.rs",
        &["lifecycle::identity::", "controllers::runtime::caches::"],
        &[
            gone("a Node of another name is not the machine's", "«node.metadata.name.as_deref() == Some(self.name.as_str())»", "true"),
            gone("a Node of another VM is not the machine's", "«said == Some(&self.provider_id.to_string())»", "true"),
            gone("of two objects with one VM, the copy is the second", "«rank(one) <= rank(other)»", "true"),
        ],
    ),
    of(
        "src/lifecycle/machine/mod.rs",
        &["lifecycle::machine::", "controllers::machine::"],
        &[
            gone("a copy of a machine makes no VM", "if let Some(twin) = «s.twin»", "None"),
            gone("a copy that goes takes no VM with it", "«s.twin.is_some()»", "false"),
            gone("Windows is no control plane", "«owner.is_control_plane»", "false"),
            gone("a VM waits for its cluster's infrastructure", "«!provisioned && !cluster.infrastructure_provisioned»", "false"),
        ],
    ),
    of(
        "src/lifecycle/machine/placement.rs",
        &["lifecycle::machine::"],
        &[gone("a machine goes to no hypervisor that its cluster may not use", "«!self.cluster.may_use(name)»", "false")],
    ),
    of(
        "src/lifecycle/machine/vm.rs",
        &["lifecycle::machine::"],
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
        "src/lifecycle/bootstrap_config/csr.rs",
        &["lifecycle::bootstrap_config::csr::"],
        &[
            gone("a request that is decided is not judged", "JOIN_SIGNER || «is_decided(request)»", "false"),
            gone("another token gets no certificate", "if «!ours»", "false"),
            gone("a request asks for what a kubelet asks for", "«check(request, &content, &node_user)»", "Ok(())"),
            gone("a token gets one certificate", "«first(expected, &content)»", "Ok(())"),
            gone("the name of another's Node is not given away", "«bound(expected, node)»", "Ok(())"),
        ],
    ),
    of(
        "src/lifecycle/pool/removal.rs",
        &["lifecycle::pool::removal::"],
        &[
            gone("a Machine goes after core looks after it", "«has_finalizer(&machine.metadata, MACHINE_FINALIZER)»", "true"),
            gone("what leaves is not removed again", "«is_leaving && (standalone || machine.is_some() || is_deleted)»", "false"),
            gone("another's Node refutes nothing", "«machine.is_of(node)»", "true"),
            gone("a Node that is not Ready refutes nothing", "&& «(is_ready(node) || (why == Why::Failed && member.had_no_node()))»", "true"),
        ],
    ),
    of(
        "src/lifecycle/node/teardown.rs",
        &["lifecycle::node::teardown::", "controllers::machine::"],
        &[gone("core's machine waits for its cluster", "«elapsed(deleted, now) >= CORE»", "true")],
    ),
    of(
        "src/lifecycle/hypervisor.rs",
        &["lifecycle::hypervisor::", "controllers::hypervisor::"],
        &[gone("another endpoint is not believed", "known.filter(|known| «*known != id»)", "false")],
    ),
    of(
        "src/lifecycle/hypervisor/orphans.rs",
        &["lifecycle::hypervisor::", "controllers::hypervisor::"],
        &[
            gone("a new orphan is not reported", "«now.duration_since(self.since) >= REPORTED_AFTER»", "true"),
            gone("a new orphan is not removed", "«now.duration_since(self.since) >= REMOVED_AFTER»", "true"),
            gone("an orphan is removed where that is wanted", "«object.spec.orphans == Orphans::Remove» &&", "true"),
            gone("a hypervisor that goes removes no orphan", "«object.metadata.deletion_timestamp.is_none()» && now", "true"),
            gone("a VM of another namespace is no orphan", "«is_here» &&", "true"),
        ],
    ),
    of(
        "src/controllers/machine/mod.rs",
        &["controllers::machine::"],
        &[gone(
            "a Node goes before its VM",
            "match «node_teardown::tear_down(ctx, object).await?»",
            "{ ask_hypervisor(ctx, object, &owner, target).await?; node_teardown::tear_down(ctx, object).await? }",
        )],
    ),
    of(
        "src/controllers/machine/act.rs",
        &["controllers::machine::"],
        &[
            gone("absence is confirmed", "«vm.driver.confirm_absence(&vm.target.key).await?»", "()"),
            gone("the absence of a VM that was made is confirmed", "Goal::Gone || «object.spec.provider_id.is_some()»", "false"),
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
            gone("a Node that was made anew is not completed", "«now.metadata.uid == node.metadata.uid» && machine", "true"),
            gone("another's Node is not completed", "&& «machine.is_of(now)»", "true"),
        ],
    ),
    of(
        "src/controllers/machine/node_teardown.rs",
        &["controllers::machine::"],
        &[
            gone("another's Node is not drained", "filter(|node| «machine.is_of(node)»)", "true"),
            gone(
                "a Node goes after its pods",
                "if let Some(decision) = «drain::drain(ctx, object, &workload, &node).await?»",
                "None::<Decision<()>>",
            ),
        ],
    ),
    of(
        "src/controllers/bootstrap_config/data_secret.rs",
        &["controllers::bootstrap_config::"],
        &[gone("another's Secret is not replaced", "if «is_owned(&found, object) || is_lost(&found, object)»", "true")],
    ),
    of(
        "src/controllers/bootstrap_config/clean_up.rs",
        &["controllers::bootstrap_config::"],
        &[
            gone("the Node of a living machine stays", "|| «!living.contains(&id.vm)»", "true"),
            gone("a Node goes with its Cluster alone", "«!found.cluster.as_ref().is_some_and(|target| target.is_deleting)»", "false"),
        ],
    ),
    of(
        "src/controllers/bootstrap_config/token.rs",
        &["controllers::bootstrap_config::"],
        &[gone("another's token is not extended", "«existing.owner.as_deref() == Some(&owner_of(object).id)»", "true")],
    ),
    of(
        "src/controllers/pool/mod.rs",
        &["controllers::pool::"],
        &[
            gone("a pool goes after its configurations", "&& «configs == 0»", "true"),
            gone("a pool knows its Nodes before it decides", "and_then(|_| «ctx.clusters.nodes().listed(cluster)»)", "Ok(true)"),
            gone("a machine that no watch shows is asked for", "«machines::look_for_unseen(ctx, object).await?»", "()"),
            gone("a machine that cannot be read is waited for", "if «!unreadable.is_empty()»", "false"),
        ],
    ),
    of(
        "src/controllers/pool/configs.rs",
        &["controllers::pool::"],
        &[
            gone(
                "the API server is asked for the machine of what goes",
                "if «cluster.get::<WindowsMachine>(&namespace, &name).await?.is_some()»",
                "false",
            ),
            gone("a configuration that was made anew stays", "now.filter(|now| «now.uid() == config.uid()»", "true"),
        ],
    ),
    of(
        "src/controllers/pool/machines.rs",
        &["controllers::pool::"],
        &[
            gone(
                "marks of the autoscaler are read before a removal",
                "«refuse_if_annotations_have_changed(ctx, object, request, found).await?»",
                "()",
            ),
            gone("a machine of another pool is not taken for an own one", "«owner.uid == uid»", "true"),
            gone("a name without an answer is kept", "if «is_another_try» ||", "false"),
            gone("a machine that was made anew is another", "«found.uid() == made.uid()»", "true"),
            gone("a Node is read before its machine goes for it", "if «!removal::is_because_of_its_node(&machine.member, why)»", "true"),
        ],
    ),
    of(
        "src/controllers/pool/memory.rs",
        &["controllers::pool::memory::", "controllers::pool::tests::"],
        &[gone("a removal that no watch shows yet counts", "«self.lock().get(pool).is_some_and(|m| m.removed.contains_key(machine))»", "false")],
    ),
    of(
        "src/controllers/pool/observe.rs",
        &["controllers::pool::"],
        &[
            gone("a machine is lost that the pool has made", "«is_marked» &&", "true"),
            gone("a pool's owner is the object with its UID", "«p.metadata.uid.as_deref() == Some(&reference.uid)»", "true"),
        ],
    ),
    of(
        "src/controllers/pool/hand_over.rs",
        &["controllers::pool::"],
        &[gone("an adoption of a machine is of what was read", "owners, «\"resourceVersion\"»: meta.resource_version", "\"selfLink\"")],
    ),
    of("src/controllers/pool/node_labels.rs", &["controllers::pool::"], &[gone("another's Node gets no labels", "«identity.is_of(node)»", "true")]),
    of(
        "src/controllers/hypervisor/mod.rs",
        &["controllers::hypervisor::", "controllers::machine::"],
        &[
            gone("a hypervisor stays for its machines", "&& «!is_used»", "true"),
            gone("an endpoint is known before it is believed", "«distrust(object, &endpoint.id, &endpoint.lacks)»", "None::<DriverError>"),
            gone("one that cannot be read is there", "None if «unreadable.iter().any(|meta| meta.name.as_deref() == Some(name))»", "false"),
        ],
    ),
    of(
        "src/controllers/hypervisor/orphans.rs",
        &["controllers::hypervisor::"],
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
        "src/controllers/control_plane/mod.rs",
        &["controllers::control_plane::"],
        &[
            gone(
                "a control plane that goes asks the API server for its Cluster",
                "now = «cluster_now(&ctx.management, &namespace, &name).await?»",
                "ctx.caches.clusters.get(&namespace, &name).map(|cluster| (*cluster).clone())",
            ),
            gone("a machine that cannot be read needs the kubeconfig", "let machines = «unreadable» +", "0"),
            gone("a Cluster that names it is its own", "«clusters.into_iter().find(names_it)»", "None::<Arc<Cluster>>"),
        ],
    ),
    of(
        "src/controllers/runtime/caches.rs",
        &["controllers::runtime::", "controllers::machine::"],
        &[
            gone("a copy of a machine does not have its Node", "filter(|_| «self.first_with_the_vm_of(object).is_none()»)", "true"),
            gone("a configuration is that of the machine with its UID", "«(Some(&owner.uid) == object.metadata.uid.as_ref())».then_some", "true"),
        ],
    ),
    of(
        "src/controllers/runtime/written.rs",
        &["controllers::runtime::"],
        &[gone("no pass works with a cache that lacks our last write", "= «version(cached.meta())»", "None::<(String, u64)>")],
    ),
    of(
        "src/controllers/runtime/owners.rs",
        &["controllers::runtime::owners::", "controllers::machine::", "controllers::bootstrap_config::"],
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
        "src/controllers/runtime/certificates.rs",
        &["controllers::runtime::certificates::"],
        &[gone(
            "a request that is judged claims its token",
            "«self.claims.entry(expected.token_id).or_insert_with(|| (request.name_any(), key));»",
            "",
        )],
    ),
    of(
        "src/controllers/runtime/identities.rs",
        &["controllers::runtime::identities::"],
        &[gone("another cluster is not taken for the first", "Some(expected) if «expected != found»", "false")],
    ),
    of(
        "src/controllers/runtime/management.rs",
        &["controllers::machine::", "controllers::bootstrap_config::"],
        &[gone("an adoption is of what was read", "\"resourceVersion\": «object.resource_version()»", "None::<String>")],
    ),
    of(
        "src/controllers/runtime/answers.rs",
        &["controllers::runtime::"],
        &[gone(
            "another kubeconfig is asked for its cluster",
            "all.get(cluster).filter(|answer| «answer.fingerprint == workload.fingerprint»)",
            "true",
        )],
    ),
    of(
        "src/controllers/windows_cluster/mod.rs",
        &["controllers::windows_cluster::"],
        &[gone(
            "what goes asks the API server for its Cluster",
            "«cluster_now(&ctx.management, &name.namespace, cluster).await?.map(Arc::new)»",
            "ctx.caches.clusters.get(&name.namespace, cluster)",
        )],
    ),
    of(
        "src/controllers/windows_cluster/windows_side.rs",
        &["controllers::windows_cluster::"],
        &[
            gone("what is another's stays", "Some(found) if «taken(&found, owner).is_ok()»", "true"),
            gone("what has changed stays", "resource_version: «text(\"/metadata/resourceVersion\")»", "None"),
        ],
    ),
    of(
        "src/cluster/mod.rs",
        &["cluster::tests::"],
        &[
            gone("a patch is of the object that was read", "«set(&mut patch, \"uid\", json!(uid(object)?))»", "()"),
            gone("a status is of what was read", "uid(object)?, \"resourceVersion\": «object.resource_version()»", "None::<String>"),
            gone(
                "a finalizer changes what was read",
                "\"finalizers\": finalizers, \"resourceVersion\": «object.resource_version()»",
                "None::<String>",
            ),
            gone("a deletion names what was read", "DeleteParams { preconditions: «Some(preconditions)»", "None"),
        ],
    ),
    of(
        "src/cluster/nodes.rs",
        &["cluster::nodes::"],
        &[
            gone("a Node of another VM is not deleted", "if «provider_id.is_some_and(is_meant)»", "true"),
            gone("a deletion is of the Node that was read", "uid: «node.metadata.uid.clone()»", "None"),
            gone("a change is of the Node that was read", "\"uid\", json!(«&node.metadata.uid»)", "&None::<String>"),
            gone("a change is of the Node as it was read", "json!(«&node.metadata.resource_version»)", "&None::<String>"),
        ],
    ),
    of(
        "src/cluster/token.rs",
        &["cluster::token::"],
        &[
            gone("another's token is not deleted", "«t.owner.as_deref() == Some(owner)»", "true"),
            gone("tokens of others stay", "«token.owner.as_deref() == Some(owner)»", "true"),
            gone("a token that was made anew is not deleted", "uid: «Some(uid.to_owned())»", "None"),
        ],
    ),
    of(
        "src/hypervisor/simulated/datacenter.rs",
        &["hypervisor::simulated::"],
        &[gone("a simulated VM of another mark is left alone", "Some(record) if «record.mark != key.owner_mark()»", "false")],
    ),
];
