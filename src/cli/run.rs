//! `capw run`: the controllers. `capw guests`: only the guests of simulated VMs.

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::wine_programs::WinePrograms;
use crate::api::namespaces::Namespaces;
use crate::autoscaler::server as autoscaler;
use crate::autoscaler::server::Security;
use crate::operator::{self, Election, OperatorError, Roles, Settings};
use crate::telemetry::logs;

/// Flags of `capw run`. The cluster is that of KUBECONFIG, of ~/.kube/config, or the one that it runs in.
#[derive(Args, Debug)]
pub struct Run {
    /// Which controllers to run.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_values = ["infrastructure", "bootstrap", "control-plane"])]
    controllers: Vec<Controllers>,
    /// Watch only these namespaces, separated by commas; `*` means all.
    #[arg(long, alias = "namespace", value_name = "NAMES", value_delimiter = ',', default_value = "*", value_parser = namespace)]
    namespaces: Vec<String>,
    /// Reconcile only objects with the label cluster.x-k8s.io/watch-filter=VALUE.
    #[arg(long, value_name = "VALUE", value_parser = label_value)]
    watch_filter: Option<String>,
    /// Elect a leader by a Lease: of several processes, one is active.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// Namespace of the Lease [default: that of the pod or of the kubeconfig].
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", value_parser = label_value)]
    leader_elect_namespace: Option<String>,
    /// Name of this process in the Lease and in events.
    #[arg(long, value_name = "NAME", env = "POD_NAME", default_value = "capw")]
    instance: String,
    /// Listen address of /livez and /readyz; a port alone means every address.
    #[arg(long, value_name = "HOST:PORT", default_value = ":9440", value_parser = address)]
    health_address: SocketAddr,
    /// Listen address of /metrics: over TLS, for accounts that may get the path /metrics.
    #[arg(long, value_name = "HOST:PORT", default_value = ":8443", value_parser = address)]
    diagnostics_address: SocketAddr,
    /// Serve /metrics in plain text to every client.
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    insecure_diagnostics: bool,
    /// Directory in which simulated hypervisors keep their VMs.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/capw/simulated")]
    simulated_state: PathBuf,
    /// Run the guests of simulated VMs in this process.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    simulated_guests: bool,
    #[command(flatten)]
    wine_programs: WinePrograms,
    /// Concurrent reconciles of each controller.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    concurrency: u16,
    /// Requests per second to the management cluster; 0 means no limit.
    #[arg(long, value_name = "N", default_value_t = 100)]
    kube_api_qps: u32,
    /// Burst of requests to the management cluster.
    #[arg(long, value_name = "N", default_value_t = 200)]
    kube_api_burst: u32,
    /// Namespaces whose standalone pools may join the cluster that this process runs in, separated by commas; `*` means all [default:
    /// the namespace of the pod or of the kubeconfig].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = namespace)]
    own_cluster_namespaces: Option<Vec<String>>,
    /// Approve the serving certificates of kubelets, for machines with `servingCertificate: ClusterSigned`.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    approve_serving_certificates: bool,
    /// Listen address of the gRPC service for cluster-autoscaler (its provider externalgrpc); a port alone means every address [default: no service].
    #[arg(long, value_name = "HOST:PORT", value_parser = address, requires = "security")]
    autoscaler_address: Option<SocketAddr>,
    /// Directory with tls.crt and tls.key of that service, and ca.crt with the authority of its clients.
    #[arg(long, value_name = "DIR", env = "AUTOSCALER_TLS", group = "security")]
    autoscaler_tls: Option<PathBuf>,
    /// Names of the clients that may call it: a common name or DNS name of their certificates.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "cluster-autoscaler", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    autoscaler_clients: Vec<String>,
    /// Serve cluster-autoscaler without TLS, on a loopback address only.
    #[arg(long, group = "security")]
    autoscaler_plaintext: bool,
    /// Image of CAPW that Windows nodes pull, for the components that CAPW deploys there.
    #[arg(long, value_name = "NAME", env = "CAPW_IMAGE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    image: Option<String>,
    #[command(flatten)]
    log: Log,
}

/// The providers that this program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Controllers {
    Infrastructure,
    Bootstrap,
    ControlPlane,
}

/// Flags for logs.
#[derive(Args, Debug)]
struct Log {
    /// Format of log lines.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
    /// Level, or a list such as info,capw=debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Flags of `capw guests`.
#[derive(Args, Debug)]
pub struct Guests {
    /// Directory in which simulated hypervisors keep their VMs.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/capw/simulated")]
    simulated_state: PathBuf,
    #[command(flatten)]
    wine_programs: WinePrograms,
    #[command(flatten)]
    log: Log,
}

impl Log {
    fn start(&self) -> Result<(), String> {
        let format = match self.log_format {
            Format::Text => logs::Format::Text,
            Format::Json => logs::Format::Json,
        };
        logs::start(format, &self.log_level)
    }
}

impl Run {
    pub fn main(self) -> Result<(), String> {
        self.log.start()?;
        block_on(operator::run(self.settings()))
    }

    fn settings(self) -> Settings {
        let has = |controllers| self.controllers.contains(&controllers);
        let roles = Roles {
            infrastructure: has(Controllers::Infrastructure),
            bootstrap: has(Controllers::Bootstrap),
            control_plane: has(Controllers::ControlPlane),
        };
        let own_cluster = self.own_cluster_namespaces.map(Namespaces::from_iter);
        let own_cluster = own_cluster.or_else(|| self.leader_elect_namespace.as_deref().map(Namespaces::one));
        let election = self.leader_elect.then(|| Election { namespace: self.leader_elect_namespace, lease: lease(roles) });
        let clients = self.autoscaler_clients;
        let security = self.autoscaler_tls.map_or(Security::Loopback, |directory| Security::Tls { directory, clients });
        let autoscaler = self.autoscaler_address.map(|address| autoscaler::Settings { address, security });
        Settings {
            autoscaler,
            roles,
            namespaces: self.namespaces.into_iter().collect(),
            watch_filter: self.watch_filter,
            approve_serving_certificates: self.approve_serving_certificates,
            // The placeholder in manifests, before a user chooses an image.
            image: self.image.filter(|image| !image.starts_with("example.invalid/")),
            own_cluster,
            election,
            health_address: self.health_address,
            diagnostics_address: self.diagnostics_address,
            insecure_diagnostics: self.insecure_diagnostics,
            simulated_state: self.simulated_state,
            simulated_guests: self.simulated_guests,
            wine_programs: self.wine_programs.folder(),
            concurrency: self.concurrency,
            qps: self.kube_api_qps,
            burst: self.kube_api_burst,
            instance: self.instance,
        }
    }
}

impl Guests {
    pub fn main(self) -> Result<(), String> {
        self.log.start()?;
        block_on(operator::host_guests(self.simulated_state, self.wine_programs.folder()))
    }
}

fn block_on(program: impl Future<Output = Result<(), OperatorError>> + Send + 'static) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| format!("runtime: {e}"))?;
    // As a task: polling the program on the main thread would wake that thread at each step, and one of the runtime's threads too.
    let result = runtime.block_on(runtime.spawn(program)).unwrap_or_else(|error| resume_unwind(error.into_panic()));
    // Tasks that still run were abandoned on purpose.
    runtime.shutdown_background();
    result.map_err(|e| e.to_string())
}

/// The name of the Lease. Processes with different controllers must not wait for each other.
fn lease(roles: Roles) -> String {
    let parts = [(roles.infrastructure, "infrastructure"), (roles.bootstrap, "bootstrap"), (roles.control_plane, "control-plane")];
    if parts.iter().all(|(has, _)| *has) {
        return "capw".into();
    }
    let names: Vec<&str> = parts.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    format!("capw-{}", names.join("-"))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.to_owned() };
    full.parse().map_err(|_| format!("{text:?} is not HOST:PORT with a numeric address, e.g. 127.0.0.1:9440 or :9440"))
}

/// Parses the name of a namespace, or `*`.
fn namespace(text: &str) -> Result<String, String> {
    if text == "*" { Ok(text.to_owned()) } else { label_value(text) }
}

fn label_value(text: &str) -> Result<String, String> {
    let valid = (1..=63).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric());
    if valid {
        Ok(text.to_owned())
    } else {
        Err(format!("{text:?}: expected 1 to 63 of a-z A-Z 0-9 - _ ., beginning and ending with a letter or digit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        run: Run,
    }

    fn settings(args: &[&str]) -> Settings {
        Cli::try_parse_from(std::iter::once(&"capw").chain(args)).unwrap().run.settings()
    }

    #[test]
    fn one_deployment_runs_everything_and_three_share_it_under_leases_of_their_own() {
        let all = settings(&["--leader-elect-namespace", "x"]);
        assert_eq!(all.roles, Roles { infrastructure: true, bootstrap: true, control_plane: true });
        assert_eq!(all.election.unwrap().lease, "capw");
        let one = settings(&["--controllers=control-plane", "--leader-elect-namespace=x"]);
        assert_eq!(one.roles, Roles { infrastructure: false, bootstrap: false, control_plane: true });
        assert_eq!(one.election.unwrap().lease, "capw-control-plane");
        assert!(settings(&["--leader-elect=false"]).election.is_none());
        assert!(settings(&["--leader-elect"]).election.is_some());
        assert!(!settings(&["--simulated-guests=false"]).simulated_guests);
    }

    #[test]
    fn a_port_alone_means_every_address() {
        assert_eq!(settings(&["--health-address=:1"]).health_address.to_string(), "0.0.0.0:1");
        assert_eq!(settings(&["--health-address=[::1]:2"]).health_address.to_string(), "[::1]:2");
    }

    #[test]
    fn it_works_on_all_namespaces_or_those_that_are_named() {
        assert_eq!(settings(&[]).namespaces, Namespaces::All);
        assert_eq!(settings(&["--namespace=a"]).namespaces, Namespaces::one("a"));
        let two = settings(&["--namespaces=a,b"]).namespaces;
        assert!(two.contains("a") && two.contains("b") && !two.contains("c"));
        assert!(!settings(&[]).insecure_diagnostics && settings(&["--insecure-diagnostics"]).insecure_diagnostics);
    }

    #[test]
    fn the_own_cluster_is_for_the_own_namespace_unless_others_are_named() {
        assert_eq!(settings(&["--leader-elect-namespace=x"]).own_cluster, Some(Namespaces::one("x")));
        let named = settings(&["--leader-elect-namespace=x", "--own-cluster-namespaces=a,b"]).own_cluster.unwrap();
        assert!(named.contains("a") && named.contains("b") && !named.contains("x"));
        assert_eq!(settings(&["--own-cluster-namespaces=*"]).own_cluster, Some(Namespaces::All));
    }

    #[test]
    fn the_autoscaler_is_answered_only_if_it_is_said_who_may_call() {
        assert!(settings(&[]).autoscaler.is_none());
        let served = |args: &[&str]| settings(args).autoscaler.map(|a| a.security);
        let tls = served(&["--autoscaler-address=:1", "--autoscaler-tls=/x"]);
        assert!(matches!(tls, Some(Security::Tls { clients, .. }) if clients == ["cluster-autoscaler"]));
        assert!(matches!(served(&["--autoscaler-address=127.0.0.1:1", "--autoscaler-plaintext"]), Some(Security::Loopback)));
        for args in [&["--autoscaler-address=:1"][..], &["--autoscaler-address=:1", "--autoscaler-tls=/x", "--autoscaler-plaintext"]] {
            let error = Cli::try_parse_from(std::iter::once(&"capw").chain(args)).err().unwrap().to_string();
            assert!(error.contains("--autoscaler-tls") && error.contains("--autoscaler-plaintext"), "{error}");
        }
    }

    #[test]
    fn wrong_values_are_refused_by_the_name_of_the_flag() {
        for (flag, value) in [
            ("--health-address", "9440"),
            ("--watch-filter", "a=b"),
            ("--namespace", ""),
            ("--concurrency", "0"),
            ("--own-cluster-namespaces", ""),
            ("--controllers", "x"),
        ] {
            let error = Cli::try_parse_from(["capw", &format!("{flag}={value}")]).err().unwrap().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }
}
