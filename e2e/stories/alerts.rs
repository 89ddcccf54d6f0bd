//! Story *alerts*: a real Prometheus scrapes CAPW and evaluates the rules that we ship. First no process leads, then one does; a hypervisor refuses
//! every call, then works again. The alerts fire and resolve.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{self, Capw, ControlPlane, Kind, Options, Process, free_port, http_get, manifests, step, text, wait_for};

const RULES: &str = include_str!("../../config/components/monitoring/rules.yaml");
/// Prometheus scrapes every second, and the rules wait for a fraction of the time that they wait in a cluster.
const LIMIT: Duration = Duration::from_secs(120);
const LEASE: &str = "capw-system/capw";

#[test]
fn alerts_fire_in_a_real_prometheus() {
    let program = Path::new("/usr/bin/prometheus");
    if !program.exists() {
        return world::wine::skip("alerts_fire_in_a_real_prometheus", "Prometheus (Debian's package prometheus)");
    }
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("alerts")).await;
        let held = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "capw", "namespace": "capw-system"},
            "spec": {"holderIdentity": "none", "leaseDurationSeconds": 3600, "acquireTime": now(), "renewTime": now(), "leaseTransitions": 0}});
        cp.apply(&held.to_string()).await;
        let capw = Capw::prepare(&cp, &["--leader-elect=true"]).await;
        capw.start_again().await;
        let prometheus = Prometheus::start(&cp, program, capw.diagnostics());

        prometheus.wait("CapwNoLeader", true).await;
        cp.delete(Kind::LEASE, LEASE).await;
        prometheus.wait("CapwNoLeader", false).await;
        step("CapwNoLeader fired until a process led");

        let refuses = |refuses: bool| {
            json!({"apiVersion": Kind::WINDOWS_HYPERVISOR.api_version, "kind": "WindowsHypervisor",
            "metadata": {"name": "lab", "namespace": "default"}, "spec": {"simulated": {"unreachable": refuses}}})
        };
        cp.apply(&refuses(true).to_string()).await;
        prometheus.wait("CapwHypervisorFailing", true).await;
        prometheus.wait("CapwHypervisorDown", true).await;
        cp.apply(&refuses(false).to_string()).await;
        prometheus.wait("CapwHypervisorFailing", false).await;
        prometheus.wait("CapwHypervisorDown", false).await;
        step("CapwHypervisorFailing and CapwHypervisorDown fired until it answered");
        assert_eq!(prometheus.firing(), Ok(Vec::new()), "nothing else is wrong");
    });
}

fn now() -> String {
    // In microseconds, like client-go.
    format!("{:.6}", jiff::Timestamp::now())
}

/// Writes a YAML file as JSON, which is valid YAML.
fn written(cp: &ControlPlane, name: &str, content: &Value) -> PathBuf {
    let path = cp.directory().join(name);
    std::fs::write(&path, content.to_string()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    path
}

struct Prometheus {
    process: Process,
    address: SocketAddr,
}

impl Prometheus {
    fn start(cp: &ControlPlane, program: &Path, target: SocketAddr) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut rules = manifests::documents(RULES).remove(0)["spec"].clone();
        for rule in rules["groups"].as_array_mut().into_iter().flatten().flat_map(|group| group["rules"].as_array_mut()).flatten() {
            rule["for"] = json!("3s");
            rule["expr"] = json!(text(rule, "/expr").replace("[5m]", "[40s]"));
        }
        let rules = written(cp, "rules.yaml", &rules);
        let scrape = json!({"job_name": "capw", "static_configs": [{"targets": [target.to_string()], "labels": {"namespace": "capw-system"}}]});
        let config = json!({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [rules], "scrape_configs": [scrape]});
        let config = written(cp, "prometheus.yaml", &config);
        let data = cp.directory().join("prometheus");
        let process = Process::new("prometheus", program, cp.directory()).args([
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", data.display()),
            format!("--web.listen-address={address}"),
        ]);
        process.start();
        Self { process, address }
    }

    /// Returns the names of the firing alerts.
    fn firing(&self) -> Result<Vec<String>, String> {
        let (code, body) = http_get(self.address, "/api/v1/alerts").map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_str(&body).map_err(|error| format!("{code}: {error}: {body}"))?;
        let alerts = answer.pointer("/data/alerts").and_then(Value::as_array).ok_or(body)?;
        Ok(alerts.iter().filter(|alert| alert["state"] == "firing").map(|alert| text(alert, "/labels/alertname").to_owned()).collect())
    }

    async fn wait(&self, alert: &str, fires: bool) {
        wait_for(&format!("{alert} fires: {fires}"), LIMIT, || async {
            assert!(self.process.is_running(), "{}", self.process.log_end());
            let firing = self.firing()?;
            if firing.iter().any(|name| name == alert) == fires { Ok(()) } else { Err(format!("{firing:?}")) }
        })
        .await;
    }
}
