//! Cuts a status to the limits of its schema. Otherwise the API server would refuse the whole status, and the object would report nothing.

use std::collections::HashMap;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::decode::from_value;
use super::kinds::custom_resource_definitions;

/// The schema of each kind's status.
static SCHEMAS: LazyLock<HashMap<String, JSONSchemaProps>> = LazyLock::new(|| {
    let crds = custom_resource_definitions().into_iter();
    let status = crds.filter_map(|crd| {
        let schema = crd.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
        Some((crd.spec.names.kind, schema.properties?.remove("status")?))
    });
    status.collect()
});

/// Reads the schemas now. This takes too long for a first reconcile: all threads that reconcile would wait.
pub fn read_schemas() {
    LazyLock::force(&SCHEMAS);
}

/// The status of an object of this kind with texts and lists cut to their limits; `None` if the status is within the limits already.
pub fn fitted<S: Serialize + DeserializeOwned>(kind: &str, status: &S) -> Option<S> {
    let mut value = serde_json::to_value(status).ok()?;
    if fit(&mut value, SCHEMAS.get(kind)?) { from_value(&value).ok() } else { None }
}

/// Cuts a value to the limits of its schema. Returns whether something was cut.
fn fit(value: &mut Value, schema: &JSONSchemaProps) -> bool {
    let most = |limit: Option<i64>| limit.and_then(|limit| usize::try_from(limit).ok());
    match value {
        Value::String(text) => match most(schema.max_length).and_then(|most| text.char_indices().nth(most)) {
            Some((end, _)) => {
                text.truncate(end);
                true
            }
            None => false,
        },
        Value::Array(items) => {
            let too_many = most(schema.max_items).filter(|most| items.len() > *most);
            items.truncate(too_many.unwrap_or(items.len()));
            let Some(JSONSchemaPropsOrArray::Schema(of_item)) = &schema.items else { return too_many.is_some() };
            items.iter_mut().fold(too_many.is_some(), |cut, item| fit(item, of_item) || cut)
        }
        Value::Object(fields) => fields.iter_mut().fold(false, |cut, (name, field)| {
            let named = schema.properties.as_ref().and_then(|all| all.get(name));
            let any = if let Some(JSONSchemaPropsOrBool::Schema(any)) = &schema.additional_properties { Some(any.as_ref()) } else { None };
            named.or(any).is_some_and(|schema| fit(field, schema)) || cut
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cluster::{FailureDomain, WindowsClusterStatus};
    use crate::api::machine::{MachineAddress, MachineAddressType, WindowsMachineStatus};

    #[test]
    fn a_status_is_cut_to_what_its_schema_admits_and_no_further() {
        let domain = |name: String| FailureDomain { name, ..FailureDomain::default() };
        let domains = (0..101).map(|n| domain(format!("h{n}"))).collect();
        let many = WindowsClusterStatus { failure_domains: domains, ..WindowsClusterStatus::default() };
        let cut = fitted("WindowsCluster", &many).expect("it is too long");
        assert_eq!(cut.failure_domains, many.failure_domains[..100]);
        assert_eq!(fitted("WindowsCluster", &cut), None, "it is not cut again");

        let long = WindowsClusterStatus { failure_domains: vec![domain("x".repeat(253))], ..WindowsClusterStatus::default() };
        assert_eq!(fitted("WindowsCluster", &long), None, "a hypervisor may have a name of that length");

        let address = MachineAddress { type_: MachineAddressType::Hostname, address: "ä".repeat(300) };
        let machine = WindowsMachineStatus { addresses: vec![address], ..WindowsMachineStatus::default() };
        assert_eq!(fitted("WindowsMachine", &machine).unwrap().addresses[0].address, "ä".repeat(256));
    }
}
