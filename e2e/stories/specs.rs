//! Story *specs*: Cluster API's own end-to-end specs, from its published module, against the three components as clusterctl installs them and the
//! templates that we ship. In one run the workload cluster is the management cluster, in the other run another cluster.

use std::path::Path;
use std::time::Duration;

use crate::installed::start_parts;
use crate::workers::{remote_kubeconfig, wait_nothing_left};
use crate::world::{self, Capw, ControlPlane, Options, Process, Tools, step};

/// The limit for all specs of one run.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// The spec that the gate runs.
const QUICKEST: &str = "MachineDeployment up and down";
/// Flavors that some specs need and we do not ship.
const FLAVORS: [(&str, &str); 2] =
    [("machine-pool", include_str!("../specs/flavors/machine-pool.yaml")), ("md-remediation", include_str!("../specs/flavors/md-remediation.yaml"))];

/// `CAPW_SPECS=REGEX` runs some of them.
#[test]
#[ignore = "takes minutes: make specs"]
fn the_specs_of_cluster_api_pass() {
    world::run(async {
        let suite = Tools::own("specs");
        let (cp, other) =
            tokio::join!(ControlPlane::start(Options::plain().named("specs")), ControlPlane::start(Options::plain().named("specs-other")));
        let parts = install(&cp).await;
        let focus = std::env::var("CAPW_SPECS").ok();
        let focus = focus.as_deref();
        tokio::join!(run(&suite, "same", focus, &cp, &cp), run(&suite, "other", focus, &cp, &other));
        for to in [&cp, &other] {
            wait_nothing_left(to, &parts[0], Duration::from_secs(60)).await;
        }
    });
}

#[test]
fn the_quickest_spec_of_cluster_api_passes() {
    world::run(async {
        let suite = Tools::own("specs");
        let cp = ControlPlane::start(Options::plain().named("spec")).await;
        let parts = install(&cp).await;
        run(&suite, "same", Some(QUICKEST), &cp, &cp).await;
        wait_nothing_left(&cp, &parts[0], Duration::from_secs(60)).await;
    });
}

/// Installs the core provider and ours with clusterctl.
async fn install(cp: &ControlPlane) -> Vec<Capw> {
    let core = format!("cluster-api:{}", Tools::ensure().cluster_api_version);
    let providers = ["--infrastructure", "windows", "--bootstrap", "windows", "--control-plane", "windows"];
    cp.clusterctl(&[&["init", "--core", &core][..], &providers].concat()).await;
    for (name, documents) in FLAVORS {
        cp.add_flavor(name, documents).await;
    }
    cp.start_core().await;
    start_parts(cp).await
}

/// Runs the suite, or the specs whose name matches, for machines that join `to`.
async fn run(suite: &Path, name: &str, focus: Option<&str>, cp: &ControlPlane, to: &ControlPlane) {
    let home = cp.clusterctl_home().await;
    let artifacts = cp.directory().join(format!("artifacts-{name}"));
    let kubeconfig = cp.directory().join(format!("workload-{name}.conf"));
    std::fs::write(&kubeconfig, remote_kubeconfig(to).await).unwrap_or_else(|e| panic!("{}: {e}", kubeconfig.display()));
    let mut process = Process::new(&format!("suite-{name}"), suite, cp.directory())
        .args(["-test.timeout=0", "-ginkgo.v", "-ginkgo.no-color", "-ginkgo.timeout=1h"])
        // The framework writes kubeconfigs there and leaves them.
        .env("TMPDIR", cp.directory())
        .env("KUBECONFIG", cp.kubeconfig())
        .env("WORKLOAD_KUBECONFIG", kubeconfig)
        .env("CLUSTERCTL_CONFIG", home.join("cluster-api/clusterctl.yaml"))
        .env("KUBERNETES_VERSION", &Tools::ensure().kubernetes_version)
        .env("ARTIFACTS", artifacts);
    for (name, value) in ControlPlane::clusterctl_environment(&home) {
        process = process.env(name, value);
    }
    if let Some(focus) = focus {
        process = process.args([format!("-ginkgo.focus={focus}")]);
    }
    process.start();
    let status = process.end(LIMIT).await;
    let log = process.log();
    let said = log.find("Summarizing").or_else(|| log.rfind("\nRan ")).map_or("", |at| &log[at..]);
    assert!(status.success(), "workload {name}: {}\n{said}", process.log_end());
    assert!(!said.contains("Ran 0 of"), "no spec's name matches {focus:?}");
    step(format!("workload {name}: {}", said.trim().lines().take(2).collect::<Vec<_>>().join(" ")));
}
