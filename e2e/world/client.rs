//! Reads from and writes to a control plane: objects as JSON, kubectl, kubeconfigs. It must not know the
//! expected results.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use capw_patience::wait_for;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, ValidationDirective};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ApiResource;
use kube::{Client, Config};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::control_plane::ControlPlane;
use super::manifests;
use super::pki;
use super::tools::Tools;

/// A kind of objects, by its group, version and plural.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// `GROUP/VERSION`, or `v1`.
    pub api_version: &'static str,
    /// The plural in the URL of a request.
    pub plural: &'static str,
}

const CORE: &str = "cluster.x-k8s.io/v1beta2";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io/v1alpha1";
const CONTROL_PLANE: &str = "controlplane.cluster.x-k8s.io/v1alpha1";

#[rustfmt::skip]
impl Kind {
    pub const NODE: Self = Self::new("v1", "nodes");
    pub const SECRET: Self = Self::new("v1", "secrets");
    pub const CONFIG_MAP: Self = Self::new("v1", "configmaps");
    pub const CLUSTER_ROLE: Self = Self::new("rbac.authorization.k8s.io/v1", "clusterroles");
    pub const EVENT: Self = Self::new("v1", "events");
    pub const NAMESPACE: Self = Self::new("v1", "namespaces");
    pub const LEASE: Self = Self::new("coordination.k8s.io/v1", "leases");
    pub const CERTIFICATE_SIGNING_REQUEST: Self = Self::new("certificates.k8s.io/v1", "certificatesigningrequests");
    pub const CUSTOM_RESOURCE_DEFINITION: Self = Self::new("apiextensions.k8s.io/v1", "customresourcedefinitions");
    pub const CLUSTER: Self = Self::new(CORE, "clusters");
    pub const CLUSTER_CLASS: Self = Self::new(CORE, "clusterclasses");
    pub const MACHINE: Self = Self::new(CORE, "machines");
    pub const MACHINE_SET: Self = Self::new(CORE, "machinesets");
    pub const MACHINE_POOL: Self = Self::new(CORE, "machinepools");
    pub const MACHINE_DEPLOYMENT: Self = Self::new(CORE, "machinedeployments");
    pub const MACHINE_HEALTH_CHECK: Self = Self::new(CORE, "machinehealthchecks");
    pub const WINDOWS_CLUSTER: Self = Self::new(INFRASTRUCTURE, "windowsclusters");
    pub const WINDOWS_NODE_POOL_TEMPLATE: Self = Self::new(INFRASTRUCTURE, "windowsnodepooltemplates");
    pub const WINDOWS_CLUSTER_TEMPLATE: Self = Self::new(INFRASTRUCTURE, "windowsclustertemplates");
    pub const WINDOWS_HYPERVISOR: Self = Self::new(INFRASTRUCTURE, "windowshypervisors");
    pub const WINDOWS_NODE_POOL: Self = Self::new(INFRASTRUCTURE, "windowsnodepools");
    pub const WINDOWS_MACHINE: Self = Self::new(INFRASTRUCTURE, "windowsmachines");
    pub const WINDOWS_MACHINE_TEMPLATE: Self = Self::new(INFRASTRUCTURE, "windowsmachinetemplates");
    pub const WINDOWS_BOOTSTRAP_CONFIG: Self = Self::new(BOOTSTRAP, "windowsbootstrapconfigs");
    pub const WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE: Self = Self::new(BOOTSTRAP, "windowsbootstrapconfigtemplates");
    pub const EXTERNAL_CONTROL_PLANE: Self = Self::new(CONTROL_PLANE, "externalcontrolplanes");
    pub const EXTERNAL_CONTROL_PLANE_TEMPLATE: Self = Self::new(CONTROL_PLANE, "externalcontrolplanetemplates");
}

impl Kind {
    /// Any kind: `Kind::new("apps/v1", "deployments")`.
    pub const fn new(api_version: &'static str, plural: &'static str) -> Self {
        Self { api_version, plural }
    }

    fn resource(self) -> ApiResource {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: self.api_version.to_owned(),
            kind: String::new(),
            plural: self.plural.to_owned(),
        }
    }
}

/// A client for a kubeconfig in text form.
pub(super) async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a usable kubeconfig")).expect("a client")
}

/// How long a server, or a webhook that it calls, may be late on a busy machine.
const BUSY: Duration = Duration::from_secs(60);

/// Whether the server, or a webhook that it calls, was late: a retry of the request may succeed.
fn is_late(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Whether the server or a webhook was late, by kubectl's output.
fn is_late_to_kubectl(said: &str) -> bool {
    const WORDS: [&str; 10] = [
        "failed calling webhook",
        "context deadline exceeded",
        "etcdserver: ",
        "TLS handshake timeout",
        "connection refused",
        "connection reset by peer",
        "i/o timeout",
        "the server is currently unable to handle the request",
        "Too Many Requests",
        "unexpected EOF",
    ];
    WORDS.iter().any(|words| said.contains(words))
}

/// Runs an idempotent write, and retries it while the server is late. Returns a refusal as the error.
pub(super) async fn write<T, F: Future<Output = Result<T, kube::Error>>>(what: &str, ask: impl Fn() -> F) -> Result<T, kube::Error> {
    wait_for(what, BUSY, || async {
        match ask().await {
            Err(error) if is_late(&error) => Err(error),
            answer => Ok(answer),
        }
    })
    .await
}

/// Reads, with retries while the server is late. Panics if the server refuses.
async fn read<T, F: Future<Output = Result<T, kube::Error>>>(what: &str, ask: impl Fn() -> F) -> T {
    wait_for(what, BUSY, || async {
        match ask().await {
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => panic!("{what}: {}", status.message),
            answer => answer.map_err(|error| error.to_string()),
        }
    })
    .await
}

impl ControlPlane {
    /// The API of a kind; `namespace` is `None` for all namespaces and for cluster-scoped kinds.
    pub fn api(&self, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client(), namespace, &kind.resource()),
            None => Api::all_with(self.client(), &kind.resource()),
        }
    }

    fn named<'n>(&self, kind: Kind, name: &'n str) -> (Api<DynamicObject>, &'n str) {
        match name.split_once('/') {
            Some((namespace, name)) => (self.api(kind, Some(namespace)), name),
            None => (self.api(kind, None), name),
        }
    }

    /// One object as JSON, `None` if it does not exist. `name` is `NAMESPACE/NAME`, or `NAME` for cluster-scoped kinds.
    /// Any error except "not found" panics.
    pub async fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        let (api, short) = self.named(kind, name);
        let object = read(&format!("get {} {name}", kind.plural), || api.get_opt(short)).await;
        object.map(|object| serde_json::to_value(object).expect("an object is JSON"))
    }

    /// All objects of a kind as JSON, of one namespace or (`None`) of all. Panics if it fails.
    pub async fn list(&self, kind: Kind, namespace: Option<&str>) -> Vec<Value> {
        let (api, all) = (self.api(kind, namespace), ListParams::default());
        let list = read(&format!("list {}", kind.plural), || api.list(&all)).await;
        list.items.iter().map(|object| serde_json::to_value(object).expect("an object is JSON")).collect()
    }

    /// Polls an object until `found` gives a value. Panics at the deadline with `what` and the object's status, or its absence.
    pub async fn wait_object<T>(&self, kind: Kind, name: &str, what: &str, deadline: Duration, found: impl Fn(&Value) -> Option<T>) -> T {
        wait_for(&format!("{} {name}: {what}", kind.plural), deadline, || async {
            let object = self.get(kind, name).await.ok_or("there is none")?;
            found(&object).ok_or_else(|| format!("{:#}", object.get("status").unwrap_or(&Value::Null)))
        })
        .await
    }

    /// Waits until a condition of an object has this status; returns the condition.
    pub async fn wait_condition(&self, kind: Kind, name: &str, condition: &str, status: &str, deadline: Duration) -> Value {
        let what = format!("condition {condition}={status}");
        let found = |object: &Value| super::condition(object, condition).filter(|found| found["status"] == status).cloned();
        self.wait_object(kind, name, &what, deadline, found).await
    }

    /// Waits until an object is deleted.
    pub async fn wait_gone(&self, kind: Kind, name: &str, deadline: Duration) {
        wait_for(&format!("{} {name} is gone", kind.plural), deadline, || async {
            match self.get(kind, name).await {
                None => Ok(()),
                Some(object) => Err(format!("{:#}", object["metadata"])),
            }
        })
        .await;
    }

    /// Events about objects of this name, as `TYPE REASON: MESSAGE`, oldest first.
    pub async fn events(&self, namespace: &str, name: &str) -> Vec<String> {
        let mut events = self.list(Kind::EVENT, Some(namespace)).await;
        events.retain(|event| text(event, "/involvedObject/name") == name);
        events.sort_by_key(|event| text(event, "/metadata/creationTimestamp").to_owned());
        events.iter().map(|event| format!("{} {}: {}", text(event, "/type"), text(event, "/reason"), text(event, "/message"))).collect()
    }

    /// Merges JSON into an object and returns the result.
    pub async fn patch(&self, kind: Kind, name: &str, change: &Value) -> Result<Value, kube::Error> {
        let (api, short) = self.named(kind, name);
        let (params, patch) = (PatchParams::default(), Patch::Merge(change));
        let object = write(&format!("patch {} {name}", kind.plural), || api.patch(short, &params, &patch)).await?;
        Ok(serde_json::to_value(object).expect("an object is JSON"))
    }

    /// Merges JSON (`{"status": ...}`) into an object's status.
    pub async fn patch_status(&self, kind: Kind, name: &str, change: &Value) -> Result<(), kube::Error> {
        let (api, short) = self.named(kind, name);
        let (params, patch) = (PatchParams::default(), Patch::Merge(change));
        write(&format!("patch the status of {} {name}", kind.plural), || api.patch_status(short, &params, &patch)).await.map(drop)
    }

    /// Requests an object's deletion; succeeds if it does not exist. Does not wait for finalizers.
    pub async fn delete(&self, kind: Kind, name: &str) {
        let (api, short) = self.named(kind, name);
        let params = DeleteParams::default();
        match write(&format!("delete {} {name}", kind.plural), || api.delete(short, &params)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("delete {} {name}: {error}", kind.plural),
            Ok(_) => {}
        }
    }

    /// Creates an object as a dry run: everything is checked, unknown fields and webhooks included, and nothing is stored.
    pub async fn dry_run(&self, kind: Kind, object: &Value) -> Result<(), kube::Error> {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let address = format!("{}?dryRun=All&fieldValidation=Strict", self.api(kind, namespace).resource_url());
        let body = serde_json::to_vec(object).expect("an object is JSON");
        let request = || http::Request::post(&address).header("Content-Type", "application/json").body(body.clone()).expect("a request");
        write(&format!("dry run of {}", kind.plural), || async { self.client().request::<Value>(request()).await.map(drop) }).await
    }

    /// Merges JSON into an object as a dry run, checked like [`ControlPlane::dry_run`].
    pub async fn dry_run_patch(&self, kind: Kind, name: &str, change: &Value) -> Result<(), kube::Error> {
        let (api, short) = self.named(kind, name);
        let params = PatchParams { dry_run: true, field_validation: Some(ValidationDirective::Strict), ..PatchParams::default() };
        let patch = Patch::Merge(change);
        write(&format!("dry run of a patch of {} {name}", kind.plural), || api.patch(short, &params, &patch)).await.map(drop)
    }

    /// Applies YAML with all rights, as kubectl would, at a tenth of its cost. Panics if anything in it is refused.
    pub async fn apply(&self, yaml: &str) {
        self.apply_objects(&manifests::documents(yaml)).await;
    }

    /// Applies objects as JSON, like [`ControlPlane::apply`].
    pub async fn apply_objects(&self, objects: &[Value]) {
        manifests::apply_as_kubectl(&self.client(), objects).await.unwrap_or_else(|error| panic!("apply {error}"));
    }

    /// Applies YAML with kubectl (server-side, conflicts forced); returns its output, also as the error.
    pub async fn try_apply(&self, yaml: &str) -> Result<String, String> {
        // kubectl treats text that begins with { as JSON, even if more documents follow.
        let yaml = format!("---\n{yaml}");
        self.kubectl_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(&yaml)).await
    }

    /// Runs kubectl with all rights and returns its standard output. Panics with its standard error if it fails.
    pub async fn kubectl(&self, args: &[&str]) -> String {
        self.try_kubectl(args).await.unwrap_or_else(|said| panic!("kubectl {}: {said}", args.join(" ")))
    }

    /// Runs kubectl with all rights; returns its standard output, or its standard error if it fails.
    pub async fn try_kubectl(&self, args: &[&str]) -> Result<String, String> {
        self.kubectl_with(args, None).await
    }

    async fn kubectl_with(&self, args: &[&str], input: Option<&str>) -> Result<String, String> {
        wait_for(&format!("kubectl {}", args.join(" ")), BUSY, || async {
            let mut command = Command::new(&Tools::ensure().kubectl);
            command.args(args).env("KUBECONFIG", self.kubeconfig());
            // kubectl caches data about a server under its address, and ports are reused.
            command.env("KUBECACHEDIR", self.directory().join("kubectl")).current_dir(super::tools::checkout());
            match output(command, input).await {
                Err(said) if is_late_to_kubectl(&said) => Err(said),
                answer => Ok(answer),
            }
        })
        .await
    }

    /// Whether a user may do this to objects of a kind in every namespace. Kinds need not be installed.
    pub async fn may(&self, user: &str, verb: &str, kind: Kind) -> bool {
        self.may_in(user, verb, kind, None).await
    }

    /// As [`ControlPlane::may`] for a subresource, e.g. `status`.
    pub async fn may_in(&self, user: &str, verb: &str, kind: Kind, subresource: Option<&str>) -> bool {
        let what = ResourceAttributes {
            group: Some(kind.resource().group),
            resource: Some(kind.plural.to_owned()),
            subresource: subresource.map(str::to_owned),
            verb: Some(verb.to_owned()),
            ..Default::default()
        };
        let spec = SubjectAccessReviewSpec { user: Some(user.to_owned()), resource_attributes: Some(what), ..Default::default() };
        let review = SubjectAccessReview { spec, ..Default::default() };
        let answer = Api::<SubjectAccessReview>::all(self.client()).create(&PostParams::default(), &review).await;
        answer.unwrap_or_else(|e| panic!("a review of rights: {e}")).status.is_some_and(|status| status.allowed)
    }

    /// Address of the API server.
    pub fn server(&self) -> String {
        let admin = std::fs::read_to_string(self.kubeconfig()).expect("the administrator's kubeconfig");
        let admin = Kubeconfig::from_yaml(&admin).expect("a kubeconfig");
        admin.clusters.into_iter().find_map(|named| named.cluster?.server).expect("a kubeconfig names a server")
    }

    /// A kubeconfig file with a token of a ServiceAccount, valid for a day.
    pub async fn kubeconfig_for(&self, namespace: &str, service_account: &str) -> PathBuf {
        let token = self.token_for(namespace, service_account).await;
        let admin = std::fs::read_to_string(self.kubeconfig()).expect("the administrator's kubeconfig");
        let text = pki::kubeconfig_with_token(&admin, namespace, service_account, &token);
        self.scratch().write(&format!("kube/{namespace}.{service_account}.conf"), text)
    }

    /// A token of a ServiceAccount, valid for a day.
    pub async fn token_for(&self, namespace: &str, service_account: &str) -> String {
        let api: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(24 * 3600), ..Default::default() };
        let request = TokenRequest { spec: Some(spec), ..Default::default() };
        let answer = api.create_token_request(service_account, &PostParams::default(), &request).await;
        let answer = answer.unwrap_or_else(|e| panic!("a token for {namespace}/{service_account}: {e}"));
        answer.status.and_then(|status| status.token).expect("the answer to a token request holds a token")
    }
}

/// Runs a program to its end; returns its standard output, or its standard error if it fails.
pub async fn output(mut command: Command, input: Option<&str>) -> Result<String, String> {
    let mut child = command
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let pipe = child.stdin.take();
    let feed = async {
        if let (Some(mut pipe), Some(input)) = (pipe, input) {
            // A program that does not read all input reports the reason itself.
            let _ = pipe.write_all(input.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(format!("{}{}", text(&output.stderr), text(&output.stdout))) }
}

/// The text at a JSON pointer; empty if there is none.
pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A condition of an object, by its type.
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == kind)
}
