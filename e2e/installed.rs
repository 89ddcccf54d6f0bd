//! What a user installs: `kubectl apply -k config/default`, or the three components with clusterctl.

use std::time::Duration;

use serde_json::json;

use crate::world::{self, Capw, ControlPlane, Kind, Options, wait_for};

/// CAPW's ServiceAccount can do its work and cannot make itself more than it is.
#[test]
fn kustomize_installs_kinds_and_least_rights() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("installed")).await;
        Capw::install(&cp).await;
        let explain = ["explain", "windowsmachine.spec", "--api-version", Kind::WINDOWS_MACHINE.api_version];
        // Documentation follows a definition some seconds later.
        let explained = wait_for("kubectl explain knows our kinds", Duration::from_secs(20), || cp.try_kubectl(&explain)).await;
        assert!(explained.contains("hypervisorRef"), "{explained}");

        let may = async |verb: &str, kind: Kind| cp.may(Capw::USER, verb, kind).await;
        assert!(may("watch", Kind::WINDOWS_MACHINE).await);
        assert!(may("get", Kind::MACHINE).await);
        assert!(!may("delete", Kind::MACHINE).await);
        assert!(!may("delete", Kind::WINDOWS_MACHINE).await);
        assert!(!may("create", Kind::new("apps/v1", "deployments")).await);
        assert!(!may("create", Kind::new("rbac.authorization.k8s.io/v1", "clusterroles")).await);
        assert!(!may("*", Kind::new("*/*", "*")).await);
    });
}

/// clusterctl finds all providers in a local repository, with no network, installs them beside core and makes clusters of our templates.
#[test]
fn clusterctl_installs_the_three_components() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("components")).await;
        let core = format!("cluster-api:{}", world::Tools::ensure().cluster_api_version);
        cp.clusterctl(&["init", "--core", &core, "--infrastructure", "windows", "--bootstrap", "windows", "--control-plane", "windows"]).await;
        let providers = cp.list(Kind::new("clusterctl.cluster.x-k8s.io/v1alpha3", "providers"), None).await;
        let mut found: Vec<_> = providers.iter().map(|provider| (json!(provider["type"]), json!(provider["version"]))).collect();
        found.sort_by_key(|(kind, _)| kind.to_string());
        let ours = json!(format!("v{}", env!("CARGO_PKG_VERSION")));
        let theirs = json!(world::Tools::ensure().cluster_api_version);
        let expected = [("BootstrapProvider", &ours), ("ControlPlaneProvider", &ours), ("CoreProvider", &theirs), ("InfrastructureProvider", &ours)];
        assert_eq!(found, expected.map(|(kind, version)| (json!(kind), version.clone())));
        cp.start_core().await;

        // What the templates make is taken by core's webhooks and by the rules in our definitions.
        let version = &world::Tools::ensure().kubernetes_version;
        for (name, flavor) in [("plain", &[][..]), ("topology", &["--flavor", "topology"])] {
            let args = [&["generate", "cluster", name, "--infrastructure", "windows", "--kubernetes-version", version], flavor].concat();
            let made = cp.clusterctl(&args).await;
            cp.apply(&made).await;
            assert!(cp.get(Kind::CLUSTER, &format!("default/{name}")).await.is_some(), "{made}");
        }
    });
}
