//! The calls: read the caches, decide, write once, remember the reported number.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use kube::ResourceExt;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use tonic::{Code, Request, Response, Status};

use super::change::{self, Change, Refusal};
use super::group::{self, Group};
use super::wire::cloud_provider_server::CloudProvider;
use super::{template, wire};
use crate::api::machine::WindowsMachine;
use crate::api::pool::WindowsNodePool;
use crate::kinds::pool::decide::template::Template;
use crate::kube_api::cluster::Cluster;
use crate::kube_api::error::ApiError;
use crate::telemetry::Metrics;

/// The most attempts for a write that conflicts with another one.
const TRIES: usize = 5;
/// The limit for a call; the autoscaler waits for 5 s.
const LIMIT: Duration = Duration::from_secs(4);
/// A label that no Node has, because none of our machines has a GPU that pods can request.
const GPU_LABEL: &str = "infrastructure.cluster.x-k8s.io/gpu";

/// The cached objects that calls read.
pub trait NodeGroups: Send + Sync + 'static {
    fn pools(&self) -> Vec<Arc<WindowsNodePool>>;
    fn pool(&self, namespace: &str, name: &str) -> Option<Arc<WindowsNodePool>>;
    /// The machines of a pool.
    fn machines(&self, pool: &WindowsNodePool) -> Vec<Arc<WindowsMachine>>;
    /// Returns how many pods have an address on a node of the pool, if that is known.
    fn pods_per_node(&self, pool: &WindowsNodePool) -> Option<u64>;
    /// Returns the template of the pool's machines, or why it is unknown.
    fn template(&self, pool: &WindowsNodePool) -> Result<Template, String>;
}

/// The handle of the service, filled while this process leads and its caches are complete. Clones share it.
#[derive(Clone, Default)]
pub struct ServiceHandle(Arc<RwLock<Option<Arc<Backend>>>>);

impl ServiceHandle {
    /// Starts answering calls.
    pub fn open(&self, groups: Arc<dyn NodeGroups>, cluster: Cluster) {
        let backend = Backend { groups, cluster, told: Mutex::default(), written: Mutex::default(), writing: tokio::sync::Mutex::default() };
        *self.0.write() = Some(Arc::new(backend));
    }

    /// Stops answering calls: they fail with a request to retry.
    pub fn close(&self) {
        *self.0.write() = None;
    }

    fn backend(&self) -> Result<Arc<Backend>, Status> {
        let backend = self.0.read().clone();
        backend.ok_or_else(|| Status::unavailable("this process does not lead, or has just begun: ask again"))
    }
}

/// The state that calls share.
struct Backend {
    groups: Arc<dyn NodeGroups>,
    cluster: Cluster,
    /// The number that was last reported to the autoscaler, by group.
    told: Mutex<HashMap<String, i32>>,
    /// The pools as this process wrote them, until the watch delivers them.
    written: Mutex<HashMap<String, WindowsNodePool>>,
    writing: tokio::sync::Mutex<()>,
}

impl Backend {
    /// Returns the pools that are served.
    fn groups(&self) -> Vec<Group> {
        let mut pools: Vec<WindowsNodePool> = self.groups.pools().iter().map(|pool| self.newest(pool)).collect();
        pools.retain(|pool| group::bounds(pool).is_some());
        pools.sort_by_key(group::id);
        pools.into_iter().map(|pool| self.group(pool)).collect()
    }

    fn named(&self, id: &str) -> Result<Group, Status> {
        let (namespace, name) = id.split_once('/').ok_or_else(|| Status::invalid_argument(format!("id: {id:?}: expected NAMESPACE/NAME")))?;
        let pool = self.groups.pool(namespace, name).map(|pool| self.newest(&pool)).filter(|pool| group::bounds(pool).is_some());
        Ok(self.group(pool.ok_or_else(|| Status::not_found(format!("{id}: is no WindowsNodePool that may be scaled")))?))
    }

    fn group(&self, pool: WindowsNodePool) -> Group {
        let mut machines = self.groups.machines(&pool);
        machines.sort_by_key(|m| m.name_any());
        Group { pool, machines }
    }

    /// Returns the newest known version of a pool: the watch may be behind our own write.
    fn newest(&self, cached: &WindowsNodePool) -> WindowsNodePool {
        let mut written = self.written.lock();
        let id = group::id(cached);
        match written.get(&id) {
            Some(own) if own.uid() == cached.uid() && own.metadata.generation > cached.metadata.generation => own.clone(),
            Some(_) => {
                written.remove(&id);
                cached.clone()
            }
            None => cached.clone(),
        }
    }

    fn template(&self, id: &str) -> Result<(Group, Template), Status> {
        let group = self.named(id)?;
        let template = self.groups.template(&group.pool).map_err(|why| Status::failed_precondition(format!("{id}: {why}")))?;
        Ok((group, template))
    }

    /// Reads the pool itself, decides and writes, until no other client wrote first.
    async fn change(&self, id: &str, decide: impl Fn(&Group, Option<i32>) -> Result<Option<Change>, Refusal>) -> Result<(), Status> {
        let cached = self.named(id)?.pool;
        let (namespace, name) = (cached.namespace().unwrap_or_default(), cached.name_any());
        let _one_at_a_time = self.writing.lock().await;
        for _ in 0..TRIES {
            let pool: Option<WindowsNodePool> = self.cluster.get(&namespace, &name).await.map_err(|e| failed(&e))?;
            let pool = pool.filter(|p| p.uid() == cached.uid()).ok_or_else(|| Status::not_found(format!("{id}: is gone")))?;
            let group = self.group(pool);
            let told = self.told.lock().get(id).copied();
            let Some(change) = decide(&group, told).map_err(refused)? else { return Ok(()) };
            if let Some(base) = change.base {
                self.told.lock().insert(id.to_owned(), base);
            }
            match self.cluster.merge(&group.pool, change.patch(group.pool.resource_version().as_deref())).await {
                Ok(pool) => {
                    tracing::info!(pool = id, from = group.pool.spec.replicas, to = change.replicas, remove = ?change.named, "scaled by cluster-autoscaler");
                    self.written.lock().insert(id.to_owned(), pool);
                    return Ok(());
                }
                Err(ApiError::Conflict(_)) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Err(Status::aborted(format!("{id}: other clients keep writing this pool: ask again")))
    }
}

fn refused(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Invalid(why) => Status::invalid_argument(why),
        Refusal::NotFound(why) => Status::not_found(why),
        Refusal::Bounds(why) => Status::failed_precondition(why),
    }
}

fn failed(error: &ApiError) -> Status {
    match error {
        ApiError::NotFound(_) => Status::not_found(error.to_string()),
        ApiError::Forbidden(_) | ApiError::Unauthorized(_) => Status::permission_denied(error.to_string()),
        ApiError::Invalid(_) => Status::failed_precondition(error.to_string()),
        _ => Status::unavailable(error.to_string()),
    }
}

/// The service, for one client or several.
pub struct Service {
    handle: ServiceHandle,
    metrics: Metrics,
}

impl Service {
    pub fn new(handle: ServiceHandle, metrics: Metrics) -> Self {
        Self { handle, metrics }
    }

    /// Runs one call: counted, timed, bounded.
    async fn call<T>(&self, name: &'static str, work: impl AsyncFnOnce(Arc<Backend>) -> Result<T, Status>) -> Result<Response<T>, Status> {
        let start = Instant::now();
        let result = match self.handle.backend() {
            Ok(backend) => {
                tokio::time::timeout(LIMIT, work(backend)).await.unwrap_or_else(|_| Err(Status::deadline_exceeded("the API server does not answer")))
            }
            Err(status) => Err(status),
        };
        let code = result.as_ref().err().map_or(Code::Ok, Status::code);
        self.metrics.autoscaler_call(name, code_name(code), start.elapsed());
        if let Err(status) = &result {
            tracing::warn!(call = name, code = code_name(code), why = status.message(), "refused a call of cluster-autoscaler");
        }
        result.map(Response::new)
    }

    fn not_offered<T>(&self, name: &'static str) -> Result<Response<T>, Status> {
        self.metrics.autoscaler_call(name, code_name(Code::Unimplemented), Duration::ZERO);
        Err(Status::unimplemented("machines have no price"))
    }
}

fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::InvalidArgument => "invalid_argument",
        Code::NotFound => "not_found",
        Code::FailedPrecondition => "failed_precondition",
        Code::Aborted => "aborted",
        Code::Unavailable => "unavailable",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::PermissionDenied => "permission_denied",
        Code::Unimplemented => "unimplemented",
        _ => "other",
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[async_trait]
impl CloudProvider for Service {
    async fn node_groups(&self, _: Request<wire::NodeGroupsRequest>) -> Answer<wire::NodeGroupsResponse> {
        self.call("NodeGroups", async |backend| {
            let node_groups = backend.groups().iter().filter_map(|group| group::listed(&group.pool)).collect();
            Ok(wire::NodeGroupsResponse { node_groups })
        })
        .await
    }

    async fn node_group_for_node(&self, request: Request<wire::NodeGroupForNodeRequest>) -> Answer<wire::NodeGroupForNodeResponse> {
        let node = request.into_inner().node.unwrap_or_default();
        self.call("NodeGroupForNode", async |backend| {
            let found = backend.groups().into_iter().find(|group| group.machine(&node).is_some());
            Ok(wire::NodeGroupForNodeResponse { node_group: Some(found.and_then(|group| group::listed(&group.pool)).unwrap_or_default()) })
        })
        .await
    }

    async fn pricing_node_price(&self, _: Request<wire::PricingNodePriceRequest>) -> Answer<wire::PricingNodePriceResponse> {
        self.not_offered("PricingNodePrice")
    }

    async fn pricing_pod_price(&self, _: Request<wire::PricingPodPriceRequest>) -> Answer<wire::PricingPodPriceResponse> {
        self.not_offered("PricingPodPrice")
    }

    async fn gpu_label(&self, _: Request<wire::GpuLabelRequest>) -> Answer<wire::GpuLabelResponse> {
        self.call("GPULabel", async |_| Ok(wire::GpuLabelResponse { label: GPU_LABEL.into() })).await
    }

    async fn get_available_gpu_types(&self, _: Request<wire::GetAvailableGpuTypesRequest>) -> Answer<wire::GetAvailableGpuTypesResponse> {
        self.call("GetAvailableGPUTypes", async |_| Ok(wire::GetAvailableGpuTypesResponse::default())).await
    }

    async fn cleanup(&self, _: Request<wire::CleanupRequest>) -> Answer<wire::CleanupResponse> {
        // No state is kept for a client.
        self.call("Cleanup", async |_| Ok(wire::CleanupResponse {})).await
    }

    async fn refresh(&self, _: Request<wire::RefreshRequest>) -> Answer<wire::RefreshResponse> {
        // Watches keep the caches up to date. A process that does not lead must report it here, before the autoscaler plans anything.
        self.call("Refresh", async |_| Ok(wire::RefreshResponse {})).await
    }

    async fn node_group_target_size(&self, request: Request<wire::NodeGroupTargetSizeRequest>) -> Answer<wire::NodeGroupTargetSizeResponse> {
        let id = request.into_inner().id;
        self.call("NodeGroupTargetSize", async |backend| {
            let target_size = backend.named(&id)?.pool.spec.replicas;
            backend.told.lock().insert(id, target_size);
            Ok(wire::NodeGroupTargetSizeResponse { target_size })
        })
        .await
    }

    async fn node_group_increase_size(&self, request: Request<wire::NodeGroupIncreaseSizeRequest>) -> Answer<wire::NodeGroupIncreaseSizeResponse> {
        let wire::NodeGroupIncreaseSizeRequest { id, delta } = request.into_inner();
        self.call("NodeGroupIncreaseSize", async |backend| {
            backend.change(&id, |group, told| change::increase(group, told, delta)).await?;
            Ok(wire::NodeGroupIncreaseSizeResponse {})
        })
        .await
    }

    async fn node_group_delete_nodes(&self, request: Request<wire::NodeGroupDeleteNodesRequest>) -> Answer<wire::NodeGroupDeleteNodesResponse> {
        let wire::NodeGroupDeleteNodesRequest { id, nodes } = request.into_inner();
        self.call("NodeGroupDeleteNodes", async |backend| {
            backend.change(&id, |group, _| change::delete(group, &nodes)).await?;
            Ok(wire::NodeGroupDeleteNodesResponse {})
        })
        .await
    }

    async fn node_group_decrease_target_size(
        &self,
        request: Request<wire::NodeGroupDecreaseTargetSizeRequest>,
    ) -> Answer<wire::NodeGroupDecreaseTargetSizeResponse> {
        let wire::NodeGroupDecreaseTargetSizeRequest { id, delta } = request.into_inner();
        self.call("NodeGroupDecreaseTargetSize", async |backend| {
            backend.change(&id, |group, told| change::decrease(group, told, delta)).await?;
            Ok(wire::NodeGroupDecreaseTargetSizeResponse {})
        })
        .await
    }

    async fn node_group_nodes(&self, request: Request<wire::NodeGroupNodesRequest>) -> Answer<wire::NodeGroupNodesResponse> {
        let id = request.into_inner().id;
        self.call("NodeGroupNodes", async |backend| Ok(wire::NodeGroupNodesResponse { instances: backend.named(&id)?.instances() })).await
    }

    async fn node_group_template_node_info(
        &self,
        request: Request<wire::NodeGroupTemplateNodeInfoRequest>,
    ) -> Answer<wire::NodeGroupTemplateNodeInfoResponse> {
        let id = request.into_inner().id;
        self.call("NodeGroupTemplateNodeInfo", async |backend| {
            let (group, template) = backend.template(&id)?;
            let name = format!("template-of-{}", group.pool.name_any());
            let node = template::node(&name, &template, backend.groups.pods_per_node(&group.pool))
                .map_err(|why| Status::failed_precondition(format!("{id}: {why}")))?;
            Ok(wire::NodeGroupTemplateNodeInfoResponse { node_bytes: node.encode_to_vec() })
        })
        .await
    }

    async fn node_group_get_options(
        &self,
        request: Request<wire::NodeGroupAutoscalingOptionsRequest>,
    ) -> Answer<wire::NodeGroupAutoscalingOptionsResponse> {
        let wire::NodeGroupAutoscalingOptionsRequest { id, defaults } = request.into_inner();
        self.call("NodeGroupGetOptions", async |backend| {
            let (_, template) = backend.template(&id)?;
            let node_group_autoscaling_options = template::options(&template, &defaults.unwrap_or_default());
            Ok(wire::NodeGroupAutoscalingOptionsResponse { node_group_autoscaling_options })
        })
        .await
    }
}
