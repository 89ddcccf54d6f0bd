//! The AWS VPC CNI: whether Windows nodes get addresses.

use super::cluster::Cluster;
use super::family::Family;
use crate::components::place::{ObjectRef, Place};
use crate::components::workloads::Program;

/// The settings of the AWS VPC CNI.
#[derive(Clone, Debug, PartialEq)]
pub struct Aws {
    pub object: ObjectRef,
    /// Whether the object exists.
    pub exists: bool,
    pub field: String,
    /// Whether Windows nodes get addresses.
    pub windows: bool,
}

pub fn read(cluster: &Cluster<'_>) -> Family<Aws> {
    const KEY: &str = "enable-windows-ipam";
    let place = cluster.objects.config_map("kube-system", "amazon-vpc-cni").map(|map| map.at("data").at(KEY));
    let windows = place.as_ref().and_then(Place::flag_in_text).unwrap_or(false);
    let exists = place.is_some();
    let object = place.map_or_else(|| ObjectRef::new("ConfigMap", Some("kube-system"), "amazon-vpc-cni"), |place| place.object);
    let aws = Aws { object, exists, field: format!("data.{KEY}"), windows };
    Family::plain(cluster.version(Program::AwsVpcCni), None).map(|()| aws)
}
