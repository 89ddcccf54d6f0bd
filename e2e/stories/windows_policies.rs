//! Story *Windows policies*: a real API server understands every expression of the admission policies for Windows pods, and applies them to pods and
//! workloads. Each object gets exactly the expected warnings. Only pods that cannot work are refused, and only on request. The real API server's
//! compiler, with the CEL libraries of each minor, shows what API servers of other minors accept.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::time::Duration;

use capw::api::bootstrap_config::WindowsRelease;
use capw::api::components::{Policies, ValidationMode};
use capw::components::{Effect, Host, POD_RULES, Parameters, read, windows_pods, windows_side};
use futures::StreamExt;
use futures::future::ready;
use futures::stream;
use http::Request;
use kube::client::Body;
use serde_json::{Value, json};

use crate::world::{self, ControlPlane, Kind, Options, Tools, checkout, manifests, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(60);
/// The number of concurrent requests.
const AT_ONCE: usize = 4;
const PODS: Kind = Kind::new("v1", "pods");
const DEPLOYMENTS: Kind = Kind::new("apps/v1", "deployments");
const DAEMON_SETS: Kind = Kind::new("apps/v1", "daemonsets");
const POLICIES: Kind = Kind::new("admissionregistration.k8s.io/v1", "validatingadmissionpolicies");
/// The Kubernetes minors whose API servers have this version of admission policies, up to the newest.
const MINORS: RangeInclusive<u32> = 30..=36;
/// The workload kinds that create pods.
const WORKLOADS: [(&str, Kind); 5] = [
    ("Deployment", DEPLOYMENTS),
    ("DaemonSet", DAEMON_SETS),
    ("StatefulSet", Kind::new("apps/v1", "statefulsets")),
    ("Job", Kind::new("batch/v1", "jobs")),
    ("CronJob", Kind::new("batch/v1", "cronjobs")),
];

#[test]
fn pods_that_cannot_work_on_windows_are_found_and_no_others() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("windows-policies")).await;
        let pods = documents("src/components/windows_pods/policies/pods.yaml");
        let class = |name: &str| json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "handler"});
        cp.apply_objects(&[class("gvisor"), class("windows-own")]).await;
        wait_for("the namespace takes pods", LIMIT, || async {
            cp.get(Kind::new("v1", "serviceaccounts"), "default/default").await.ok_or("it has no ServiceAccount yet")
        })
        .await;
        let mut old = named(&pods, "network-by-selector").clone();
        old["metadata"]["name"] = json!("before");
        cp.apply_objects(&[with_namespace(&old)]).await;

        cp.apply_objects(&objects(ValidationMode::Warn)).await;
        understood(&cp).await;
        step("the API server understands every expression");

        for mode in [ValidationMode::Warn, ValidationMode::Deny] {
            cp.apply_objects(&objects(mode)).await;
            enforced(&cp, &pods, mode).await;
            let wrong = judged_wrong(&cp, pods.iter().map(|pod| (PODS, pod.clone(), pod)), mode == ValidationMode::Deny).await;
            assert!(wrong.is_empty(), "{mode:?}: {wrong:#?}");
            step(format!("{} pods are judged right with {mode:?}", pods.len()));
        }
        let workloads = pods.iter().flat_map(|pod| WORKLOADS.map(|(name, kind)| (kind, workload(name, pod), pod)));
        let wrong = judged_wrong(&cp, workloads, false).await;
        assert!(wrong.is_empty(), "{wrong:#?}");
        step(format!("and so is what makes them, {} objects: no policy refuses one", pods.len() * WORKLOADS.len()));

        the_page_shows_what_is_said(&cp, &pods).await;
        what_capw_brings_is_right(&cp).await;
        what_is_there_already_is_left_alone(&cp, text(&old, "/metadata/name")).await;
        only_changes_by_people_are_judged(&cp, &old).await;
    });
}

#[test]
fn the_api_servers_of_all_minors_take_every_expression() {
    let fields = ["matchConditions", "variables", "validations"];
    let policies = policies();
    let written: usize = policies.iter().flat_map(|policy| fields.map(|field| policy["spec"][field].as_array().map_or(0, Vec::len))).sum();
    assert_eq!(compiled(&policies), MINORS.map(|minor| format!("1.{minor} takes {written}")).collect::<Vec<_>>());
    // The library exists from 1.33 on. In a new expression, an API server accepts only what the previous minor has too.
    let newer = json!({"metadata": {"name": "newer"}, "spec": {"validations": [{"expression": "semver('1.0.0').major() == 1"}]}});
    let said = compiled(&[newer]);
    for minor in MINORS {
        let takes = said.contains(&format!("1.{minor} takes 1"));
        assert_eq!(takes, minor > 33, "1.{minor}: {said:#?}");
    }
}

/// Returns the refusals of these policies by API servers of [`MINORS`], and the number of expressions that each accepts.
fn compiled(policies: &[Value]) -> Vec<String> {
    let mut program = Command::new(Tools::own("policies"));
    program.args(MINORS.map(|minor| minor.to_string())).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().expect("it starts");
    child.stdin.take().expect("its input").write_all(json!(policies).to_string().as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}: see above", output.status);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn documents(path: &str) -> Vec<Value> {
    let file = checkout().join(path);
    manifests::documents(&std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display())))
}

/// Returns all objects that CAPW brings for pods on Windows nodes.
fn objects(validation: ValidationMode) -> Vec<Value> {
    let host = Host { release: WindowsRelease::Server2022, hyper_v: false };
    windows_pods(&[host].into(), &Policies { validation, ..Policies::default() })
}

fn named<'p>(pods: &'p [Value], name: &str) -> &'p Value {
    pods.iter().find(|pod| text(pod, "/metadata/name") == name).unwrap_or_else(|| panic!("no pod {name}"))
}

fn with_namespace(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["namespace"] = json!("default");
    object
}

/// Returns a workload of this kind that creates such pods.
fn workload(kind: &str, pod: &Value) -> Value {
    let labels = json!({"app": "a"});
    let mut template = json!({"metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]}, "spec": pod["spec"]});
    if kind.ends_with("Job") {
        template["spec"]["restartPolicy"] = json!("Never");
    }
    let (version, spec) = match kind {
        "Job" => ("batch/v1", json!({"template": template})),
        "CronJob" => ("batch/v1", json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": template}}})),
        _ => ("apps/v1", json!({"selector": {"matchLabels": labels}, "template": template})),
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": pod["metadata"]["name"]}, "spec": spec})
}

/// Returns the policies among the objects that CAPW brings for pods.
fn policies() -> Vec<Value> {
    let policies: Vec<Value> = objects(ValidationMode::Warn).into_iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy").collect();
    assert_eq!(policies.len(), 3);
    policies
}

/// Waits until the API server has type-checked each policy, and fails if it found a problem.
async fn understood(cp: &ControlPlane) {
    for policy in policies() {
        let is_seen = |policy: &Value| (policy["status"]["observedGeneration"] == policy["metadata"]["generation"]).then(|| policy["status"].clone());
        let status = cp.wait_object(POLICIES, text(&policy, "/metadata/name"), "it was looked through", LIMIT, is_seen).await;
        assert!(status["typeChecking"]["expressionWarnings"].is_null(), "{status:#}");
    }
}

/// Waits until the policies take effect, moments after they are written.
async fn enforced(cp: &ControlPlane, pods: &[Value], mode: ValidationMode) {
    let probe = named(pods, "privileged");
    wait_for(&format!("{mode:?} takes effect"), LIMIT, || async {
        judged(cp, DEPLOYMENTS, &workload("Deployment", probe), probe, false).await?;
        judged(cp, PODS, probe, probe, mode == ValidationMode::Deny).await
    })
    .await;
}

/// The API server's answer to a request.
#[derive(Debug)]
struct Answer {
    code: u16,
    /// The reason for a refusal.
    message: String,
    warnings: Vec<String>,
}

/// Sends a request, and repeats it while the server is overloaded.
async fn ask(cp: &ControlPlane, request: impl Fn() -> http::request::Builder, body: &Value) -> Answer {
    wait_for("the API server answers", LIMIT, || async {
        let request = request().body(Body::from(body.to_string().into_bytes())).expect("a request");
        let response = cp.client().send(request).await.map_err(|error| error.to_string())?;
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter().map(|warning| warning.to_str().expect("text").to_owned()).collect();
        let body = response.into_body().collect_bytes().await.map_err(|error| error.to_string())?;
        let object: Value = serde_json::from_slice(&body).expect("JSON");
        let message = if code < 400 { String::new() } else { text(&object, "/message").to_owned() };
        if code >= 500 || code == 429 { Err(message) } else { Ok(Answer { code, message, warnings }) }
    })
    .await
}

/// Creates an object in a dry run.
async fn created(cp: &ControlPlane, kind: Kind, object: &Value) -> Answer {
    let address = format!("{}?dryRun=All&fieldValidation=Strict", cp.api(kind, Some("default")).resource_url());
    ask(cp, || Request::post(&address).header("Content-Type", "application/json"), object).await
}

/// Merges JSON into an object in a dry run.
async fn patched(cp: &ControlPlane, kind: Kind, path: &str, change: &Value) -> Answer {
    let address = format!("{}/{path}?dryRun=All&fieldValidation=Strict", cp.api(kind, Some("default")).resource_url());
    ask(cp, || Request::patch(&address).header("Content-Type", "application/strategic-merge-patch+json"), change).await
}

/// Returns the rules that an answer names.
fn told(answer: &Answer) -> BTreeSet<&'static str> {
    let is_told = |message: &str| answer.warnings.iter().any(|warning| warning.contains(message)) || answer.message.contains(message);
    POD_RULES.iter().filter(|rule| is_told(rule.message)).map(|rule| rule.id).collect()
}

/// Checks that the API server's answer for the object equals the expectation for the pod.
async fn judged(cp: &ControlPlane, kind: Kind, object: &Value, pod: &Value, denies: bool) -> Result<(), String> {
    let answer = created(cp, kind, object).await;
    let expected: BTreeSet<&str> = text(pod, "/metadata/annotations/expected").split_whitespace().collect();
    let fails = |id: &&&str| POD_RULES.iter().any(|rule| rule.id == **id && rule.effect == Effect::Fails);
    let refused: BTreeSet<&str> = expected.iter().filter(fails).copied().collect();
    let is_right = if expected.contains("api-server") {
        answer.code == 422 && !answer.message.contains("ValidatingAdmissionPolicy")
    } else if denies && !refused.is_empty() {
        answer.code == 422 && answer.message.contains("capw-windows-pods") && told(&answer).is_superset(&refused)
    } else {
        answer.code == 201 && told(&answer) == expected && answer.warnings.len() == expected.len()
    };
    if is_right { Ok(()) } else { Err(format!("{} {}: {expected:?} expected: {answer:?}", kind.plural, text(pod, "/metadata/name"))) }
}

/// Returns the wrong answers for objects and the pods that they create.
async fn judged_wrong(cp: &ControlPlane, objects: impl Iterator<Item = (Kind, Value, &Value)>, denies: bool) -> Vec<String> {
    let judged = stream::iter(objects).map(|(kind, object, pod)| async move { judged(cp, kind, &object, pod, denies).await.err() });
    judged.buffer_unordered(AT_ONCE).filter_map(ready).collect().await
}

/// Checks that the page shows the warnings as kubectl prints them.
async fn the_page_shows_what_is_said(cp: &ControlPlane, pods: &[Value]) {
    let path = checkout().join("docs/pods.md");
    let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let warnings = created(cp, DEPLOYMENTS, &workload("Deployment", named(pods, "privileged"))).await.warnings;
    let said: Vec<String> = warnings.iter().map(|warning| format!("Warning: {}", warning.trim_start_matches("299 - ").trim_matches('"'))).collect();
    let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("Warning: ")).collect();
    assert!(!shown.is_empty() && shown.iter().all(|line| said.iter().any(|said| said == line)), "{shown:#?} is shown, {said:#?} is said");
}

/// Checks that the DaemonSets for the network break no rule.
async fn what_capw_brings_is_right(cp: &ControlPlane) {
    let parameters =
        Parameters { image: "registry.example.com/capw:v0".into(), api_server: "https://10.0.0.10:6443".into(), pull_secrets: Vec::new() };
    let side = windows_side(&read(&documents("src/components/fixtures/flannel-vxlan-4096.yaml")), &parameters).expect("objects");
    let sets: Vec<&Value> = side.iter().filter(|object| object["kind"] == "DaemonSet").collect();
    assert!(!sets.is_empty());
    for set in sets {
        let mut set = set.clone();
        set["metadata"]["namespace"] = json!("default");
        let answer = created(cp, DAEMON_SETS, &set).await;
        assert!(answer.code == 201 && answer.warnings.is_empty(), "{answer:?}");
    }
    step("what CAPW itself brings breaks no rule");
}

/// A pod from before stays unchanged. It may be changed, and debugged with a container that works on Windows.
async fn what_is_there_already_is_left_alone(cp: &ControlPlane, pod: &str) {
    let answer = patched(cp, PODS, pod, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert!(answer.code == 200 && answer.warnings.is_empty(), "{answer:?}");
    for (security, code, expected) in [
        (json!({}), 200, ""),
        (json!({"capabilities": {"add": ["SYS_PTRACE"]}}), 200, "capabilities"),
        (json!({"privileged": true}), 422, "privileged"),
    ] {
        let container = json!({"name": "debugger", "image": "registry.example.com/debugger", "securityContext": security});
        let answer = patched(cp, PODS, &format!("{pod}/ephemeralcontainers"), &json!({"spec": {"ephemeralContainers": [container]}})).await;
        assert_eq!((answer.code, told(&answer)), (code, expected.split_whitespace().collect()), "{answer:?}");
    }
    step("pods from before are left alone");
}

/// A change of only the workload's own annotations is not judged, because controllers write them all the time.
async fn only_changes_by_people_are_judged(cp: &ControlPlane, pod: &Value) {
    let mut deployment = with_namespace(&workload("Deployment", pod));
    deployment["spec"]["replicas"] = json!(0);
    cp.apply_objects(&[deployment]).await;
    for (change, expected) in [
        (json!({"metadata": {"annotations": {"a": "b"}}}), ""),
        (json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}), "host-network os-name"),
    ] {
        let answer = patched(cp, DEPLOYMENTS, text(pod, "/metadata/name"), &change).await;
        assert_eq!((answer.code, told(&answer)), (200, expected.split_whitespace().collect()), "{answer:?}");
    }
    step("only changes by people are judged");
}
