//! Reads the Linux side of a workload cluster: what it runs as its pod network. Nothing is written there.

use serde_json::Value;

use crate::api::listing::Listing;
use crate::cluster::linux_side::Watched;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::components::{FIRST, LinuxSide, read, wanted};

/// What was read, and what to watch to learn when it changes.
pub struct Observed {
    pub side: LinuxSide,
    pub watched: Vec<Watched>,
}

pub async fn observe(workload: &Workload) -> Result<Observed, WorkloadError> {
    let (mut objects, mut watched) = (Vec::new(), Vec::new());
    list(workload, &FIRST, &mut objects, &mut watched).await?;
    let wanted = wanted(&objects);
    list(workload, &wanted.lists, &mut objects, &mut watched).await?;
    for map in wanted.config_maps {
        let namespace = map.namespace.unwrap_or_default();
        objects.extend(workload.config_map_object(&namespace, &map.name).await?);
        watched.push(Watched::ConfigMap { namespace, name: map.name });
    }
    Ok(Observed { side: read(&objects), watched })
}

/// A kind that is not served cannot be watched.
async fn list(workload: &Workload, kinds: &[Listing], objects: &mut Vec<Value>, watched: &mut Vec<Watched>) -> Result<(), WorkloadError> {
    for kind in kinds {
        if let Some(found) = workload.objects(kind).await? {
            objects.extend(found);
            watched.push(Watched::Kind(*kind));
        }
    }
    Ok(())
}
