//! Reads the Linux side of a workload cluster: what it runs as its pod network. Nothing is written there.

use serde_json::Value;

use crate::api::listing::Listing;
use crate::cluster::workload::{Workload, WorkloadError};
use crate::components::{FIRST, LinuxSide, read, wanted};

pub async fn observe(workload: &Workload) -> Result<LinuxSide, WorkloadError> {
    let mut objects = listed(workload, &FIRST).await?;
    let wanted = wanted(&objects);
    objects.extend(listed(workload, &wanted.lists).await?);
    for map in wanted.config_maps {
        objects.extend(workload.config_map_object(map.namespace.as_deref().unwrap_or_default(), &map.name).await?);
    }
    Ok(read(&objects))
}

async fn listed(workload: &Workload, kinds: &[Listing]) -> Result<Vec<Value>, WorkloadError> {
    let mut objects = Vec::new();
    for kind in kinds {
        objects.extend(workload.objects(kind).await?);
    }
    Ok(objects)
}
