//! A memory budget for the objects that watches of workload clusters keep; each cluster gets a part.

use tokio::sync::OwnedSemaphorePermit;

use super::budget::{Budget, Crowded};

/// The budgets of all workload clusters, and of one. A new listing is kept beside the previous one; each may hold all Nodes of the largest cluster
/// that Kubernetes supports.
const BUDGET: usize = 192 << 20;
const SHARE: usize = 96 << 20;

/// The place of one object.
pub(super) type Place = Vec<OwnedSemaphorePermit>;

/// The budget of one workload cluster. Clones share it.
#[derive(Clone)]
pub struct Keeping(pub(super) Vec<Budget>);

/// The budget of a single cluster.
impl Default for Keeping {
    fn default() -> Self {
        Self(vec![Budget::new(SHARE, "what watches of this API server show")])
    }
}

impl Keeping {
    pub fn of_all() -> Budget {
        Budget::new(BUDGET, "what watches of all workload clusters show")
    }

    pub fn of_one(all: &Budget) -> Self {
        let Self(mut budgets) = Self::default();
        budgets.push(all.clone());
        Self(budgets)
    }

    pub(super) fn take(&self, bytes: usize) -> Result<Place, Crowded> {
        self.0.iter().map(|budget| budget.take(bytes)).collect()
    }
}
