//! Cuts a status to the limits of its schema. Otherwise the API server would refuse the whole status, and the object would report nothing.

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::decode::from_value;

/// The limits of a value and of the values in it. Definitions hold the same, and take hundreds of times as much memory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Limits {
    /// In characters.
    max_length: Option<usize>,
    max_items: Option<usize>,
    /// The items of a list, and the values of a map.
    each: Option<Box<Limits>>,
    fields: BTreeMap<Box<str>, Limits>,
}

impl Limits {
    /// Reads a schema; `None` if it has no limits.
    fn read(schema: &Value) -> Option<Self> {
        let number = |name: &str| schema.get(name)?.as_u64().and_then(|most| usize::try_from(most).ok());
        let each = schema.get("items").or_else(|| schema.get("additionalProperties"));
        let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let limits = Self {
            max_length: number("maxLength"),
            max_items: number("maxItems"),
            each: each.and_then(Self::read).map(Box::new),
            fields: fields.filter_map(|(name, field)| Some((name.as_str().into(), Self::read(field)?))).collect(),
        };
        (limits != Self::default()).then_some(limits)
    }

    /// Returns the limits of a type: its schema is made once.
    fn of<S: JsonSchema + 'static>() -> Arc<Self> {
        static READ: Mutex<Option<HashMap<TypeId, Arc<Limits>>>> = Mutex::new(None);
        let generate = || {
            let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
            Self::read(settings.into_generator().into_root_schema_for::<S>().as_value()).unwrap_or_default().into()
        };
        READ.lock().get_or_insert_default().entry(TypeId::of::<S>()).or_insert_with(generate).clone()
    }

    /// Cuts a value to these limits. Returns whether something was cut.
    fn fit(&self, value: &mut Value) -> bool {
        match value {
            Value::String(text) => match self.max_length.and_then(|most| text.char_indices().nth(most)) {
                Some((end, _)) => {
                    text.truncate(end);
                    true
                }
                None => false,
            },
            Value::Array(items) => {
                let too_many = self.max_items.filter(|most| items.len() > *most);
                items.truncate(too_many.unwrap_or(items.len()));
                let each = self.each.as_deref();
                items.iter_mut().fold(too_many.is_some(), |cut, item| each.is_some_and(|each| each.fit(item)) || cut)
            }
            Value::Object(fields) => fields.iter_mut().fold(false, |cut, (name, field)| {
                let limits = self.fields.get(name.as_str()).or(self.each.as_deref());
                limits.is_some_and(|limits| limits.fit(field)) || cut
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// The status with texts and lists cut to their limits; `None` if it is within the limits already.
pub fn fitted<S: Serialize + DeserializeOwned + JsonSchema + 'static>(status: &S) -> Option<S> {
    let mut value = serde_json::to_value(status).ok()?;
    if Limits::of::<S>().fit(&mut value) { from_value(&value).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cluster::{FailureDomain, WindowsClusterStatus};
    use crate::api::custom_resource_definitions;
    use crate::api::hypervisor::WindowsHypervisorStatus;
    use crate::api::machine::{MachineAddress, MachineAddressType, WindowsMachineStatus};

    #[test]
    fn a_status_is_cut_to_what_its_schema_admits_and_no_further() {
        let domain = |name: String| FailureDomain { name, ..FailureDomain::default() };
        let domains = (0..101).map(|n| domain(format!("h{n}"))).collect();
        let many = WindowsClusterStatus { failure_domains: domains, ..WindowsClusterStatus::default() };
        let cut = fitted(&many).expect("it is too long");
        assert_eq!(cut.failure_domains, many.failure_domains[..100]);
        assert_eq!(fitted(&cut), None, "it is not cut again");

        let long = WindowsClusterStatus { failure_domains: vec![domain("x".repeat(253))], ..WindowsClusterStatus::default() };
        assert_eq!(fitted(&long), None, "a hypervisor may have a name of that length");

        let address = MachineAddress { type_: MachineAddressType::Hostname, address: "ä".repeat(300) };
        let machine = WindowsMachineStatus { addresses: vec![address], ..WindowsMachineStatus::default() };
        assert_eq!(fitted(&machine).unwrap().addresses[0].address, "ä".repeat(256));
    }

    /// The API server judges by the definition.
    #[test]
    fn the_limits_are_those_of_the_definition() {
        let limits = [
            ("WindowsMachine", Limits::of::<WindowsMachineStatus>()),
            ("WindowsCluster", Limits::of::<WindowsClusterStatus>()),
            ("WindowsHypervisor", Limits::of::<WindowsHypervisorStatus>()),
        ];
        for (kind, own) in &limits {
            let crd = custom_resource_definitions().into_iter().find(|crd| crd.spec.names.kind == *kind).unwrap();
            let schema = serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap()).unwrap();
            let status = schema.pointer("/openAPIV3Schema/properties/status").unwrap();
            assert_eq!(**own, Limits::read(status).unwrap(), "{kind}");
        }
        assert!(!limits[0].1.fields.is_empty(), "a machine's status has limits");
    }
}
