//! The process and its log against real API servers: of two processes one leads, a stop releases the lease, and a lost lease ends the process. Writes
//! name the object that was read. Kubernetes accepts CAPW's tokens and join rights.

use std::time::Duration;

use capw::api::hypervisor::WindowsHypervisor;
use capw::kube_api::cluster::Cluster;
use capw::kube_api::error::ApiError;
use capw::kube_api::join_rights;
use capw::kube_api::rights::Right;
use capw::kube_api::token::{self, Owner};
use capw::kube_api::workload::{Workload, WorkloadError};
use serde_json::{Value, json};

use crate::world::{self, Capw, ControlPlane, Kind, Options, text, wait_for};

const LEASE: &str = "capw-system/capw";

#[test]
fn one_process_leads_and_hands_over() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("election")).await;
        let first = Capw::prepare(&cp, &["--leader-elect=true", "--instance=first"]).await;
        first.start_again().await;
        let leader = holds(&cp, "first_").await;
        let second = Capw::prepare(&cp, &["--leader-elect=true", "--instance=second"]).await;
        second.start_again().await;
        // The second process is ready to take over, and idle: it has not even read an object.
        wait_for("the second says that it waits", Duration::from_secs(10), || async {
            second.log().contains("waiting for leadership").then_some(())
        })
        .await;
        assert_eq!((first.metric("capw_leader", &[]), second.metric("capw_leader", &[])), (1.0, 0.0));
        assert_eq!(second.metric("capw_api_requests_total", &["windowsmachines"]), 0.0);
        assert!(held_by(&cp).await.is_some_and(|now| now == leader), "the lease stays where it is");

        let code = first.stop().and_then(|status| status.code());
        assert_eq!(code, Some(0), "{}", first.log());
        assert!(first.log().contains("released the lease"), "{}", first.log());
        // This is much sooner than the lease expires.
        wait_for("the second leads", Duration::from_secs(6), || async { (second.metric("capw_leader", &[]) == 1.0).then_some(()) }).await;
        holds(&cp, "second_").await;

        // Another holder takes the lease by force, so the process must stop working.
        let stolen = json!({ "spec": { "holderIdentity": "thief", "leaseDurationSeconds": 3600 } });
        cp.patch(Kind::LEASE, LEASE, &stolen).await.unwrap();
        wait_for("the second ends", Duration::from_secs(15), || async { (!second.process().is_running()).then_some(()) }).await;
        assert!(second.log().contains("leadership lost: thief took it"), "{}", second.log());
    });
}

async fn held_by(cp: &ControlPlane) -> Option<String> {
    cp.get(Kind::LEASE, LEASE).await.map(|lease| text(&lease, "/spec/holderIdentity").to_owned())
}

async fn holds(cp: &ControlPlane, start: &str) -> String {
    wait_for(&format!("{start} holds the lease"), Duration::from_secs(20), || async {
        let holder = held_by(cp).await.ok_or("no holder")?;
        if holder.starts_with(start) { Ok(holder) } else { Err(holder) }
    })
    .await
}

/// The API server refuses every write that names a former object of the same name, and the new object stays unchanged.
#[test]
fn an_object_recreated_is_not_written_with_what_was_read_before() {
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("exact")).await;
        let cluster = Cluster::new(cp.client());
        let make = "{apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1, kind: WindowsHypervisor, metadata: {name: lab, namespace: default}, spec: {simulated: {}}}";
        wait_for("the definition is served", Duration::from_secs(20), || cp.try_apply(make)).await;
        let former: WindowsHypervisor = cluster.get("default", "lab").await.unwrap().unwrap();
        let status = json!({ "version": "1", "conditions": [] });
        let written = cluster.apply_status(&former, "test", &status).await.unwrap();
        cp.delete(Kind::WINDOWS_HYPERVISOR, "default/lab").await;
        cp.wait_gone(Kind::WINDOWS_HYPERVISOR, "default/lab", Duration::from_secs(10)).await;
        let gone = cluster.apply_status(&former, "test", &status).await;
        assert!(matches!(gone, Err(ApiError::NotFound(_) | ApiError::Conflict(_))), "{gone:?}");
        cp.apply(make).await;
        let before = cp.get(Kind::WINDOWS_HYPERVISOR, "default/lab").await.unwrap();

        let uid = former.metadata.uid.clone().unwrap();
        let attempts: Vec<(&str, Result<(), ApiError>)> = vec![
            ("status", cluster.apply_status(&former, "test", &status).await.map(drop)),
            ("merge", cluster.merge_spec(&former, json!({ "simulated": { "unreachable": true } })).await.map(drop)),
            ("finalizer", cluster.add_finalizer(&former, "a.b/c").await.map(drop)),
            ("replace", cluster.replace(&written).await.map(drop)),
            ("delete", cluster.delete_exact::<WindowsHypervisor>("default", "lab", &uid, None).await),
        ];
        for (what, result) in attempts {
            assert!(matches!(result, Err(ApiError::Conflict(_))), "{what}: {result:?}");
        }
        assert_eq!(cp.get(Kind::WINDOWS_HYPERVISOR, "default/lab").await.unwrap(), before);

        // A finalizer is added only to the version of the object that was read.
        let read: WindowsHypervisor = cluster.get("default", "lab").await.unwrap().unwrap();
        cluster.apply_status(&read, "test", &status).await.unwrap();
        assert!(matches!(cluster.apply_status(&read, "test", &status).await, Err(ApiError::Conflict(_))));
        assert!(matches!(cluster.add_finalizer(&read, "a.b/c").await, Err(ApiError::Conflict(_))));
        // Applying the same status again changes nothing.
        let once: WindowsHypervisor = cluster.get("default", "lab").await.unwrap().unwrap();
        let twice = cluster.apply_status(&once, "test", &status).await.unwrap();
        assert_eq!(twice.metadata.resource_version, once.metadata.resource_version);
    });
}

#[test]
fn tokens_and_join_rights_are_what_kubernetes_accepts() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("tokens")).await;
        let kubeconfig = std::fs::read(cp.kubeconfig()).unwrap();
        let workload = Workload::from_kubeconfig("the test's kubeconfig", &kubeconfig).await.unwrap();
        assert!(workload.version().await.unwrap().starts_with("v1."));
        assert!(workload.ca_pem.as_deref().is_some_and(|pem| pem.contains("BEGIN CERTIFICATE")));

        let own = Owner { id: "default/c1/1".into(), description: "WindowsMachine default/win-1".into() };
        let until = jiff::Timestamp::now() + Duration::from_secs(600);
        let made = token::create(&workload, "abcdef", &"0123456789abcdef".into(), &own, until).await.unwrap();
        // After a crash, the second attempt finds the first token.
        let again = token::create(&workload, "abcdef", &"ffffffffffffffff".into(), &own, until).await.unwrap();
        assert_eq!((again.id, again.expires), (made.id.clone(), made.expires));
        // Kubernetes authenticates the token and puts its user into our group.
        let user = who_am_i(&cp, "abcdef.0123456789abcdef").await;
        assert_eq!(text(&user, "/username"), "system:bootstrap:abcdef");
        let groups = user["groups"].as_array().unwrap();
        assert!(groups.contains(&json!("system:bootstrappers:capw")), "{groups:?}");
        assert!(!groups.iter().any(|g| g.as_str().is_some_and(|g| g.contains("kubeadm"))), "{groups:?}");

        // The token has no rights until CAPW creates them, then a joining node's rights. A second check writes nothing.
        let joining = Workload { client: client_with(&cp, "abcdef.0123456789abcdef").await, ..workload.clone() };
        let needs = [
            Right { verb: "create", group: "certificates.k8s.io", resource: "certificatesigningrequests", ..Right::default() },
            Right { verb: "get", resource: "nodes", ..Right::default() },
            Right { verb: "get", resource: "configmaps", namespace: "kube-system", name: "kubeadm-config", ..Right::default() },
            Right { verb: "get", resource: "configmaps", namespace: "kube-system", name: "kubelet-config", ..Right::default() },
        ];
        assert_eq!(joining.lacks(&needs).await.unwrap(), needs);
        assert!(join_rights::ensure(&workload).await.unwrap());
        wait_for("the token has the rights of a joining node", Duration::from_secs(10), || async {
            match joining.lacks(&needs).await {
                Ok(lacking) if lacking.is_empty() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        let more = [Right { verb: "list", resource: "secrets", ..Right::default() }, Right { verb: "delete", resource: "nodes", ..Right::default() }];
        assert_eq!(joining.lacks(&more).await.unwrap(), more);
        assert!(!join_rights::ensure(&workload).await.unwrap(), "the rights that the API server stored are those that were asked for");

        let later = until + Duration::from_secs(600);
        let longer = token::extend(&workload, &made, later).await.unwrap();
        assert!(longer.expires > made.expires);
        assert!(matches!(token::extend(&workload, &made, later).await, Err(WorkloadError::Api(ApiError::Conflict(_)))), "an older version");
        assert!(!token::delete(&workload, "abcdef", "another description").await.unwrap());
        assert!(token::delete(&workload, "abcdef", &own.id).await.unwrap());
        assert!(!token::delete(&workload, "abcdef", &own.id).await.unwrap());
    });
}

async fn client_with(cp: &ControlPlane, token: &str) -> kube::Client {
    let admin = std::fs::read_to_string(cp.kubeconfig()).unwrap();
    let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&admin).unwrap();
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() });
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

async fn who_am_i(cp: &ControlPlane, token: &str) -> Value {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews").header("Content-Type", "application/json");
    let client = client_with(cp, token).await;
    let answer: Value = client.request(request.body(serde_json::to_vec(&review).unwrap()).unwrap()).await.unwrap();
    answer["status"]["userInfo"].clone()
}
