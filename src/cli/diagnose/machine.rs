//! `capw diagnose machine NAME`: reads the objects and passes them to the doctor.

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::ResourceExt;

use super::answer::Answer;
use super::reasons;
use crate::api::bootstrap_config::WindowsBootstrapConfig;
use crate::api::capi::{self, Machine};
use crate::api::cluster::WindowsCluster;
use crate::api::cluster_ref::{ClusterRef, ClusterSource};
use crate::api::condition::{self, ConditionType, Reason};
use crate::api::hypervisor::WindowsHypervisor;
use crate::api::machine::WindowsMachine;
use crate::cli::connection::Connection;
use crate::diagnosis::{self, Certainty, Symptom, diagnose, objects};
use crate::kinds::windows_cluster::decide::step::of_standalone;
use crate::kube_api::cluster::Cluster;
use crate::kube_api::workload::Workload;
use crate::kube_api::workloads::Workloads;
use crate::operator;

#[derive(Args, Debug)]
pub(super) struct Of {
    /// Name of the WindowsMachine, or of its Machine.
    name: String,
    #[command(flatten)]
    connection: Connection,
}

impl Of {
    pub(super) fn look(&self) -> Result<Answer, String> {
        self.connection.ask(async |cluster, namespace| {
            let look = Look { cluster, namespace, now: operator::now(), symptoms: Vec::new(), problems: Vec::new(), not_looked_at: Vec::new() };
            look.at(&self.name).await
        })
    }
}

/// The state of one machine, as far as it was read.
struct Look {
    cluster: Cluster,
    namespace: String,
    now: Timestamp,
    symptoms: Vec<Symptom>,
    /// Conditions that report a problem, with their reasons.
    problems: Vec<(Symptom, Reason)>,
    not_looked_at: Vec<String>,
}

impl Look {
    async fn at(mut self, name: &str) -> Result<Answer, String> {
        let machine = self.machine(name).await?;
        let owner = capi::machine_owner(machine.metadata.owner_references.as_ref()).map(|owner| owner.name.clone());
        self.symptoms.extend(diagnosis::of_machine(&machine, self.now));
        self.problems("WindowsMachine", &machine.metadata, machine.status.as_ref().map(|s| s.conditions.as_slice()));
        let hypervisor = machine.status.as_ref().and_then(|s| s.failure_domain.clone());
        self.hypervisor(hypervisor.as_deref()).await;
        let asked_for = match &owner {
            Some(owner) => self.owner(owner).await,
            None => None,
        };
        self.config(&config_of(&machine, asked_for.as_ref())).await;
        let names: Vec<String> = [Some(machine.name_any()), owner].into_iter().flatten().collect();
        self.events(&names).await;
        let nodes = self.workload(&machine, asked_for.as_ref()).await;
        self.windows_cluster(&machine).await;
        if let Some(status) = asked_for.and_then(|machine| machine.status).filter(|_| !nodes) {
            // The Node itself is unreadable: Cluster API's copy of its condition is used.
            let node = status.node_ref.map(|node| node.name).unwrap_or_default();
            self.symptoms.extend(diagnosis::of_node_ready(&status.conditions, &node, self.now).symptoms);
        }
        Ok(self.answer(&machine))
    }

    /// Finds the WindowsMachine of this name, or of the Machine with this name.
    async fn machine(&self, name: &str) -> Result<WindowsMachine, String> {
        let found = self.cluster.get::<WindowsMachine>(&self.namespace, name).await.map_err(|e| e.to_string())?;
        if let Some(machine) = found {
            return Ok(machine);
        }
        let missing = || format!("there is no WindowsMachine {name} in namespace {} (another one? -n NAME)", self.namespace);
        let owner = self.cluster.get::<Machine>(&self.namespace, name).await.map_err(|_| missing())?.ok_or_else(missing)?;
        let name = &owner.spec.infrastructure_ref.name;
        self.cluster.get::<WindowsMachine>(&self.namespace, name).await.map_err(|e| e.to_string())?.ok_or_else(missing)
    }

    fn problems(&mut self, kind: &str, meta: &ObjectMeta, conditions: Option<&[Condition]>) {
        self.problems.extend(objects::problems(kind, meta, conditions.unwrap_or_default()));
    }

    fn skipped(&mut self, what: &str, error: &dyn std::fmt::Display) {
        self.not_looked_at.push(format!("{what}: {error}"));
    }

    async fn hypervisor(&mut self, name: Option<&str>) {
        let Some(name) = name else { return };
        match self.cluster.get::<WindowsHypervisor>(&self.namespace, name).await {
            Ok(Some(found)) => self.problems("WindowsHypervisor", &found.metadata, found.status.as_ref().map(|s| s.conditions.as_slice())),
            Ok(None) => {}
            Err(error) => self.skipped("the WindowsHypervisor", &error),
        }
    }

    async fn owner(&mut self, name: &str) -> Option<Machine> {
        match self.cluster.get(&self.namespace, name).await {
            Ok(found) => found,
            Err(error) => {
                self.skipped("the Machine", &error);
                None
            }
        }
    }

    async fn config(&mut self, name: &str) {
        match self.cluster.get::<WindowsBootstrapConfig>(&self.namespace, name).await {
            Ok(Some(found)) => self.problems("WindowsBootstrapConfig", &found.metadata, found.status.as_ref().map(|s| s.conditions.as_slice())),
            Ok(None) => {}
            Err(error) => self.skipped("the WindowsBootstrapConfig", &error),
        }
    }

    /// Adds the problems of the cluster's network, and the reasons why the Node waits for the network.
    async fn windows_cluster(&mut self, machine: &WindowsMachine) {
        let Some(cluster) = ClusterRef::of(&machine.metadata) else { return };
        let found = async {
            let ClusterSource::ClusterApi(name) = &cluster.source else {
                let all = self.cluster.list_in::<WindowsCluster>(Some(&self.namespace), None).await?;
                return Ok(of_standalone(&cluster, all));
            };
            let cluster: Option<capi::Cluster> = self.cluster.get(&self.namespace, name).await?;
            match cluster.as_ref().and_then(capi::Cluster::windows_cluster) {
                Some(name) => self.cluster.get::<WindowsCluster>(&self.namespace, name).await,
                None => Ok(None),
            }
        };
        match found.await {
            Ok(Some(found)) => {
                let conditions = found.status.map(|status| status.conditions).unwrap_or_default();
                self.problems.extend(objects::of_windows_cluster(&found.metadata, &conditions, objects::is_unverified(&self.symptoms)));
            }
            Ok(None) => {}
            Err(error) => self.skipped("the WindowsCluster", &error),
        }
    }

    /// Adds warning events of other programs: our own repeat conditions.
    async fn events(&mut self, names: &[String]) {
        let about = |event: &Event| event.involved_object.name.as_ref().is_some_and(|name| names.contains(name));
        let ours = |event: &Event| {
            event.reason.as_deref().and_then(Reason::from_name).is_some_and(|reason| reason.is_problem() && reason.condition().is_some())
        };
        match self.cluster.list_in::<Event>(Some(&self.namespace), None).await {
            Ok(events) => self.symptoms.extend(events.iter().filter(|event| about(event) && !ours(event)).filter_map(objects::of_event)),
            Err(error) => self.skipped("events", &error),
        }
    }

    /// Adds the facts of the workload cluster; returns whether its Nodes were readable.
    async fn workload(&mut self, machine: &WindowsMachine, owner: Option<&Machine>) -> bool {
        let Some(cluster) = ClusterRef::of(&machine.metadata) else { return false };
        let workload = match Workloads::new(self.cluster.clone()).get(&cluster).await {
            Ok(workload) => workload,
            Err(error) => {
                self.skipped("the workload cluster", &error);
                return false;
            }
        };
        let known = owner.and_then(|machine| machine.status.as_ref()?.node_ref.as_ref()).map(|node| node.name.as_str()).filter(|n| !n.is_empty());
        let nodes = match nodes(&workload, machine, known).await {
            Ok(nodes) => nodes,
            Err(error) => {
                self.skipped("the Node", &error);
                return false;
            }
        };
        self.symptoms.extend(objects::of_twins(&nodes));
        let host = machine.status.as_ref().and_then(|s| s.host_name.clone());
        let name = nodes.first().map(ResourceExt::name_any).or(host);
        if let Some(node) = nodes.first() {
            self.symptoms.extend(objects::of_node(node, machine, self.now));
        }
        let Some(name) = name else { return true };
        match workload.requests_of(&name).await {
            Ok(requests) => self.symptoms.extend(requests.iter().filter_map(|request| objects::of_request(request, self.now))),
            Err(error) => self.skipped("certificate requests", &error),
        }
        let mut names = vec![name.clone()];
        match workload.pods_on::<Pod>(&name).await {
            Ok(pods) => {
                names.extend(pods.iter().map(ResourceExt::name_any));
                self.symptoms.extend(pods.iter().filter_map(objects::of_pod));
            }
            Err(error) => self.skipped("pods on the Node", &error),
        }
        match workload.warnings_about(&names).await {
            Ok(events) => self.symptoms.extend(events.iter().filter_map(objects::of_event)),
            Err(error) => self.skipped("events of the workload cluster", &error),
        }
        true
    }

    fn answer(self, machine: &WindowsMachine) -> Answer {
        let mut symptoms = self.symptoms;
        symptoms.extend(self.problems.iter().filter(|(_, reason)| !reasons::repeats_the_guest(*reason)).map(|(symptom, _)| symptom.clone()));
        let mut findings = diagnose(&symptoms);
        let mut told: Vec<Reason> = Vec::new();
        for (symptom, reason) in self.problems {
            let known = reasons::repeats_the_guest(reason) || !diagnose(std::slice::from_ref(&symptom)).is_empty();
            if !known && !told.contains(&reason) {
                told.push(reason);
                let after = findings.iter().take_while(|finding| finding.certainty == Certainty::Certain).count();
                findings.insert(after, reasons::finding(&symptom, reason));
            }
        }
        Answer { subject: subject(machine, self.now), findings, not_looked_at: self.not_looked_at }
    }
}

/// The Node that Cluster API found, or else the Node with the machine's host name, is first; other Nodes with the machine's provider ID follow.
async fn nodes(workload: &Workload, machine: &WindowsMachine, known: Option<&str>) -> Result<Vec<Node>, crate::kube_api::workload::WorkloadError> {
    let host = machine.status.as_ref().and_then(|s| s.host_name.clone());
    let mut nodes = match known.map(str::to_owned).or(host) {
        Some(name) => workload.node(&name).await?.into_iter().collect(),
        None => Vec::new(),
    };
    if let Some(id) = &machine.spec.provider_id {
        let names: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
        nodes.extend(workload.nodes_with(|its| its == id).await?.into_iter().filter(|node| !names.contains(&node.name_any())));
    }
    Ok(nodes)
}

/// The name of the bootstrap configuration: the Machine names it; the configuration of a pool's machine has the machine's name.
pub fn config_of(machine: &WindowsMachine, owner: Option<&Machine>) -> String {
    let named = owner.and_then(|owner| owner.spec.bootstrap.config_ref.as_ref()).filter(|config| config.kind == "WindowsBootstrapConfig");
    named.map_or_else(|| machine.name_any(), |config| config.name.clone())
}

/// Describes the state of the machine in one line.
fn subject(machine: &WindowsMachine, now: Timestamp) -> String {
    let mut text = format!("WindowsMachine {}/{}", machine.namespace().unwrap_or_default(), machine.name_any());
    let Some(status) = &machine.status else { return text + ": nothing is known of it yet" };
    for type_ in [ConditionType::Ready, ConditionType::NodeJoined] {
        if let Some(found) = condition::find(&status.conditions, type_) {
            text.push_str(&format!(", {type_}={} ({})", found.status, found.reason));
        }
    }
    if let Some(said) = &status.bootstrap {
        let ago = now.duration_since(said.time.0).as_secs().max(0);
        text.push_str(&format!(", step {} {} (start {} of Windows, {ago} s ago)", said.item, said.state, said.boot));
    }
    text
}
