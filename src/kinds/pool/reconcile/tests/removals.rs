use crate::kinds::pool::reconcile::tests::*;

/// Runs a standalone pool that requests this number of machines and has these machines with that status, from another template if `is_outdated`. The
/// watch has shown no Node, but the Node of `win-a` exists by now. Returns the result of the pass.
async fn behind(replicas: usize, names: &[&str], is_outdated: bool, status: Value, ready: &str, exchanges: Vec<Exchange>) -> &'static str {
    let mut pool = pool();
    pool["metadata"]["ownerReferences"] = json!([]);
    let cluster = json!({"kubeconfigSecretRef": {"name": "c1-kubeconfig", "key": "value"}});
    json_patch::merge(&mut pool["spec"], &json!({"replicas": replicas, "version": "v1.36.3", "cluster": cluster}));
    let object: WindowsNodePool = read(pool);
    let cluster = ClusterRef::of_pool(&object).unwrap();
    let request = PoolRequest::standalone(&object, cluster.clone());
    let template = template::resolve(&Caches::empty(), &object, &request).ok().unwrap();
    let (mut machines, mut configs) = (Vec::new(), Vec::new());
    for name in names {
        let mut machine = build::machine(&object, &request, &template, name, None);
        machine.metadata.uid = Some(format!("uid-{name}"));
        configs.push(json!(build::config(&object, &machine, &Default::default())));
        let mut machine = json!(machine);
        machine["metadata"]["annotations"][HYPERVISOR_ANNOTATION] = json!("h1");
        if is_outdated {
            machine["metadata"]["labels"][TEMPLATE_LABEL] = json!("before");
        }
        machine["status"] = status.clone();
        machines.push(machine);
    }
    let server = Arc::new(Mutex::new(Server::holding([])));
    let caches = Caches { windows_machines: holding(machines), configs: holding(configs), ..Caches::empty() };
    let (shared, _script) = shared_to(caches, 1, std::iter::once(kubeconfig()).chain(exchanges).collect(), connect(&server));
    let ctx = shared.pool();
    list_nodes(&ctx.clusters, &cluster).await;
    let id = format!("windows://h1/{}", crate::api::name::VmUuid::of("uid-win-a"));
    server.lock().others.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-a"}, "spec": {"providerID": id},
        "status": {"conditions": [{"type": "Ready", "status": ready}]}}));
    let object = Arc::new(object);
    with_answers(async || reconcile(object.clone(), ctx.clone()).await).await.map_or_else(|error| error.label(), |_| "removed")
}

/// If the Node were known, another machine would be removed.
#[tokio::test]
async fn a_machine_whose_node_is_ready_by_now_is_not_the_one_that_goes() {
    let runs = || json!({"initialization": {"provisioned": true}});
    let mut never_joined = runs();
    never_joined["conditions"] =
        json!([{"type": "NodeJoined", "status": "False", "reason": "NodeNeverJoined", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let removal = || vec![step(&format!("DELETE {MACHINES}/win-a"), gone.clone()), step(STATUS, pool())];
    assert_eq!(behind(1, &["win-a", "win-b"], false, runs(), "True", vec![]).await, "conflict", "too many");
    assert_eq!(behind(1, &["win-a", "win-b"], false, runs(), "False", removal()).await, "removed", "too many");
    assert_eq!(behind(1, &["win-a"], true, runs(), "True", vec![]).await, "conflict", "outdated");
    assert_eq!(behind(1, &["win-a"], true, runs(), "False", removal()).await, "removed", "outdated");
    assert_eq!(behind(1, &["win-a"], false, never_joined, "True", vec![]).await, "conflict", "failed");
}

#[tokio::test]
async fn a_machine_pool_that_was_recreated_is_another_owner() {
    let mut recreated = pool();
    recreated["metadata"]["ownerReferences"][0]["uid"] = json!("another uid");
    let (ctx, _script) = stage(vec![]);
    reconcile(Arc::new(read(recreated)), ctx).await.expect("it waits for its owner");
}

/// The configurations clean up the workload cluster while its kubeconfig exists.
#[tokio::test]
async fn a_pool_goes_after_the_configurations_of_its_machines() {
    let config = json!({"apiVersion": "bootstrap.cluster.x-k8s.io/v1alpha1", "kind": "WindowsBootstrapConfig",
        "metadata": {"name": "win-x", "namespace": "lab", "uid": "c", "labels": {POOL_LABEL: "win"},
            "ownerReferences": [{"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "name": "win-x", "uid": "w"}]}, "spec": {}});
    let mut leaving = pool();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let pass = async |configs: Vec<Value>, expected: &str| {
        let (ctx, script) = stage_of(Caches { configs: holding(configs), ..Caches::empty() }, 1, vec![step(expected, pool())]);
        reconcile(Arc::new(read(leaving.clone())), ctx).await.expect("it is written");
        script.seen()[0].body.clone()
    };
    let said = pass(vec![config], STATUS).await;
    assert!(said.to_string().contains("0 machines and 1 bootstrap configurations"), "{said:#}");
    let released = pass(vec![], STATUS.strip_suffix("/status").unwrap()).await;
    assert_eq!(released["metadata"]["finalizers"], json!([]));
}

/// Core drains the Node of a machine only if the Machine is deleted, and a newer version of core may have written the Machine.
#[tokio::test]
async fn a_pool_waits_for_a_machine_of_core_that_cannot_be_read() {
    let mut unreadable = core_machine(json!({}), json!({}));
    unreadable["spec"] = json!(5);
    let mut another = unreadable.clone();
    another["metadata"]["name"] = json!("b");
    let event = || step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let removal = step(&format!("DELETE {MACHINES}/a"), gone);
    let deleted = json!("2026-01-02T00:00:00Z");
    for (of_core, deleted, exchanges, waits) in [
        (unreadable.clone(), Value::Null, vec![step(STATUS, pool()), event()], true),
        (unreadable, deleted.clone(), vec![step(STATUS, pool()), event()], true),
        // Core has no Machine for the WindowsMachine.
        (another, deleted, vec![removal, step(STATUS, pool())], false),
    ] {
        let caches =
            Caches { windows_machines: holding(vec![machine("a", "pool-uid")]), machines: holding_unreadable(vec![of_core]), ..Caches::empty() };
        let (ctx, script) = stage_of(caches, 1, exchanges);
        let mut object = pool();
        object["metadata"]["deletionTimestamp"] = deleted;
        reconcile(Arc::new(read(object)), ctx.clone()).await.unwrap();
        let status = script.seen().into_iter().find(|request| request.body["status"].is_object()).unwrap().body["status"].to_string();
        assert_eq!(status.contains("CAPW cannot read Machine a of this pool"), waits, "{status}");
    }
}

/// A standalone pool, and a workload cluster with these Nodes.
fn standalone(nodes: Vec<Value>, refused: Option<&str>) -> (WindowsNodePool, Context, Script) {
    let mut standalone = pool();
    standalone["metadata"]["ownerReferences"] = Value::Null;
    standalone["spec"]["cluster"] = json!({"kubeconfigSecretRef": {"name": "c1-kubeconfig"}});
    let server = Arc::new(Mutex::new(Server { others: nodes, refused: refused.map(str::to_owned), ..Server::holding([]) }));
    let (shared, script) = shared_to(Caches::empty(), 1, vec![kubeconfig()], connect(&server));
    (read(standalone), shared.pool(), script)
}

/// Otherwise machines whose Nodes exist would count as machines without a Node.
#[tokio::test(start_paused = true)]
async fn a_standalone_pool_waits_for_the_nodes_of_its_cluster() {
    let (object, ctx, _script) = standalone(vec![], Some("GET /api/v1/nodes"));
    let object = Arc::new(object);
    assert_eq!(with_answers(async || reconcile(object.clone(), ctx.clone()).await).await.unwrap(), Outcome::requeue_after(RECHECK));
}

/// The watch may be behind: the Node exists by now.
#[tokio::test(start_paused = true)]
async fn the_node_of_a_failed_machine_is_read_before_the_machine_goes() {
    let id = format!("windows://h1/{}", crate::api::name::VmUuid::of("uid-win-x"));
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-x", "uid": "n"}, "spec": {"providerID": id},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let (object, ctx, _script) = standalone(vec![node], None);
    let mut machine = machine("win-x", "pool-uid");
    machine["metadata"]["annotations"] =
        json!({crate::domain::identity::HYPERVISOR_ANNOTATION: "h1", crate::api::cluster_ref::JOINS_ANNOTATION: "secret/c1-kubeconfig/value"});
    let member = Member {
        name: "win-x".into(),
        created: jiff::Timestamp::UNIX_EPOCH,
        domain: None,
        up_to_date: true,
        state: State::NotReady,
        failed: Some(Failure { why: "NodeStatusUnknown".into(), replace: Replace::InBudget }),
        given_up_at: None,
        delete_first: false,
        named: false,
        build: None,
    };
    let found = PoolMachine { object: Arc::new(read(machine)), machine: None, request: None, config: None, member };
    let cluster = ClusterRef::of_pool(&object).unwrap();
    reach(&ctx.clusters, &cluster).await;
    let request = PoolRequest::standalone(&object, cluster);
    let template = Template { machine: read(json!({"image": "w"})), bootstrap: None, version: None };
    let remove = PoolStep::Remove { names: vec!["win-x".into()], why: Why::Failed };
    let error = machines::carry_out(&ctx, &object, &request, &template, &[found], &remove).await.unwrap_err();
    assert!(error.to_string().contains("Node win-x is there by now, or Ready"), "{error}");
}
