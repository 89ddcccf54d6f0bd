use crate::hypervisor::DriverError;
use crate::kinds::machine::reconcile::tests::*;
use crate::vm::Journal;

/// A VM is created only after there is room, the spec is checked, and the ids are stored.
#[tokio::test]
async fn a_vm_is_made_after_everything_that_can_be_known_before() {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "win-1", "namespace": "lab"}, "data": {"value": "I2Nsb3VkLWNvbmZpZw=="}});
    let reserves = Journal::from([("vm".to_owned(), "100".to_owned())]);
    for (limits, refuses, reasons) in
        [(json!({"machines": 1}), None, 1), (json!({}), Some(DriverError::Invalid("no such CPU model".into())), 1), (json!({}), None, 0)]
    {
        let mut other = owned(json!({"name": "win-0", "uid": "other", "annotations": {HYPERVISOR_ANNOTATION: "h1"}}));
        other["spec"]["providerID"] = json!(format!("windows://h1/{}", crate::api::name::VmUuid::of("other")));
        let mut hypervisor = serde_json::to_value(&*caches().hypervisors.get("lab", "h1").unwrap()).unwrap();
        hypervisor["spec"]["limits"] = limits.clone();
        let caches = Caches { windows_machines: holding(vec![other]), hypervisors: holding(vec![hypervisor]), ..caches() };
        let read_secret = limits["machines"].is_null().then(|| step("GET /api/v1/namespaces/lab/secrets/win-1", secret.clone()));
        let events = (0..reasons).map(|_| step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({})));
        let exchanges = read_secret.into_iter().chain([step(STATUS, owned(json!({})))]).chain(events).collect();
        let (shared, script) = shared(caches, 1, exchanges);
        let ctx = shared.machine();
        admit(&ctx, Empty { refuses: refuses.clone(), reserves: reserves.clone(), ..Empty::default() });
        pass(&ctx, owned(json!({"finalizers": [FINALIZER], "annotations": {HYPERVISOR_ANNOTATION: "h1", MADE_FOR_ANNOTATION: "c1"}}))).await;
        let written = script.seen().into_iter().find(|request| request.body["status"].is_object()).unwrap().body["status"].clone();
        let reason = if refuses.is_some() { "RefusedByHypervisor" } else { "NoCapacity" };
        assert_eq!(written["conditions"].to_string().contains(reason), reasons > 0, "{written:#}");
        assert_eq!(written["journal"] == json!(reserves), reasons == 0, "{written:#}");
    }
}

/// The cached Nodes may be outdated: another Node of that name may exist by now, of this machine or of another.
#[tokio::test(start_paused = true)]
async fn only_the_node_that_was_seen_is_completed() {
    let id = |uid: &str| format!("windows://h1/{}", crate::api::name::VmUuid::of(uid));
    let node =
        |uid: &str, id: String| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "uid": uid}, "spec": {"providerID": id}});
    let object: WindowsMachine = read(machine(json!({"labels": {"node.cluster.x-k8s.io/a": "b"},
        "annotations": {HYPERVISOR_ANNOTATION: "h1", JOINS_ANNOTATION: "secret/c1-kubeconfig/value"}})));
    let cluster = crate::api::cluster_ref::ClusterRef::standalone(&object.metadata).unwrap();
    for (now, is_completed) in [(node("n", id("w")), true), (node("again", id("w")), false), (node("n", id("other")), false)] {
        let server = Arc::new(Mutex::new(Server { others: vec![node("n", id("w"))], ..Server::holding([]) }));
        let (shared, _script) = shared_to(caches(), 1, vec![kubeconfig()], connect(&server));
        let ctx = shared.machine();
        list_nodes(&ctx.clusters, &cluster).await;
        server.lock().others = vec![now];
        node_completion::complete_node(&ctx, &object).await.unwrap();
        let asked = server.lock().asked.clone();
        assert_eq!(asked.iter().any(|line| line == "PATCH /api/v1/nodes/win-1"), is_completed, "{asked:?}");
    }
}

/// Every user who may write a WindowsMachine can write the provider ID of another one, and labels for its Node.
#[tokio::test(start_paused = true)]
async fn a_copy_in_another_namespace_does_not_complete_the_node_of_the_original() {
    let id = format!("windows://h1/{}", crate::api::name::VmUuid::of("original"));
    let of = |metadata: Value| {
        let mut all = json!({"labels": {"node.cluster.x-k8s.io/a": "b"},
            "annotations": {HYPERVISOR_ANNOTATION: "h1", JOINS_ANNOTATION: "secret/c1-kubeconfig/value"}});
        json_patch::merge(&mut all, &metadata);
        let mut machine = machine(all);
        machine["spec"]["providerID"] = json!(id);
        machine
    };
    let copy: WindowsMachine = read(of(json!({})));
    let cluster = ClusterRef::standalone(&copy.metadata).unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "uid": "n"}, "spec": {"providerID": id}});
    // Without the original, the machine was restored and has its Node.
    for (others, is_completed) in [(vec![], true), (vec![of(json!({"namespace": "other", "uid": "original"}))], false)] {
        let server = Arc::new(Mutex::new(Server { others: vec![node.clone()], ..Server::holding([]) }));
        let (shared, _script) = shared_to(Caches { windows_machines: holding(others), ..caches() }, 1, vec![kubeconfig()], connect(&server));
        let ctx = shared.machine();
        list_nodes(&ctx.clusters, &cluster).await;
        node_completion::complete_node(&ctx, &copy).await.unwrap();
        let asked = server.lock().asked.clone();
        assert_eq!(asked.iter().any(|line| line == "PATCH /api/v1/nodes/win-1"), is_completed, "{asked:?}");
    }
}

/// A machine that runs gets no answer. A machine that is being deleted learns that from the first one, not by a call of its own.
#[tokio::test]
async fn once_a_hypervisor_did_not_answer_no_machine_calls_it_until_a_listing_succeeds() {
    let event = || step("POST /apis/events.k8s.io/v1/namespaces/lab/events", json!({}));
    let status = STATUS.replace("win-1", "win-2");
    let reports = vec![step(STATUS, owned(json!({}))), event(), step(&status, owned(json!({}))), event()];
    let (ctx, _script) = stage(reports.into_iter().chain([refuse(&status, 503, "ServiceUnavailable")]).collect());
    let h1 = ObjectKey::new("lab", "h1");
    let driver = Arc::new(Empty { unobservable: Some(DriverError::Unreachable("no answer within 60 s".into())), ..Empty::default() });
    ctx.hypervisors.drivers.put(&ctx.caches.hypervisors.get("lab", "h1").unwrap(), driver.clone());
    let observed = || driver.observations.lock().iter().map(|key| key.name.clone()).collect::<Vec<_>>();
    let mut runs = owned(json!({"finalizers": [FINALIZER], "annotations": {HYPERVISOR_ANNOTATION: "h1"}}));
    let mut leaves = runs.clone();
    runs["spec"]["providerID"] = json!(format!("windows://h1/{}", crate::api::name::VmUuid::of("w")));
    json_patch::merge(&mut leaves, &json!({"metadata": {"name": "win-2", "uid": "w2", "deletionTimestamp": "2026-01-01T00:00:00Z"}}));

    ctx.hypervisors.inventories.listed(&h1, vec![]);
    pass(&ctx, runs).await;
    assert_eq!(observed(), ["win-1"]);
    pass(&ctx, leaves.clone()).await;
    assert_eq!(observed(), ["win-1"], "it reports that the hypervisor is unreachable, and does not call it");
    ctx.hypervisors.inventories.listed(&h1, vec![]);
    reconcile(Arc::new(read(leaves)), ctx.clone()).await.unwrap_err();
    assert_eq!(observed(), ["win-1", "win-2"]);
}
