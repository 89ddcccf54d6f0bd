//! The context of a pass for a WindowsHypervisor, and how its status is written.

use std::sync::Arc;

use super::hypervisors::Hypervisors;
use crate::engine::caches::Caches;
use crate::engine::management::Management;
use crate::engine::triggers::Requests;
use crate::engine::watch::Selection;

pub(super) const MANAGER: &str = "capw-windowshypervisor";

#[derive(Clone)]
pub struct Context {
    pub management: Arc<Management>,
    pub caches: Arc<Caches>,
    pub hypervisors: Hypervisors,
    pub requests: Requests,
    /// Selects our objects: the cache has the hypervisors of all processes, since machines may refer to any hypervisor.
    pub selection: Selection,
}
