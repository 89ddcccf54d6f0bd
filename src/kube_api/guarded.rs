//! Objects of the API server that may not match their kind.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube::core::error_boundary::InvalidObject;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object, or the metadata of an unreadable one, so that a watch or a listing continues with the rest.
///
/// It has the same purpose as kube's `DeserializeGuard`, which builds and copies a tree of each object before it reads it; this type reads the
/// text. It can be read from JSON only, and in the event of a watch the type has to come before the object, as the API server writes it.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, InvalidObject>);

impl<'de, K: DeserializeOwned + Resource> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let text = without_managed_fields(text.get());
        match serde_json::from_str(&text) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(error) => {
                let PartialObjectMeta::<K> { metadata, .. } = serde_json::from_str(&text).map_err(D::Error::custom)?;
                Ok(Self(Err(InvalidObject { error: error.to_string(), metadata })))
            }
        }
    }
}

/// Where an object holds its managed fields.
#[derive(Deserialize)]
struct Managed<'a> {
    #[serde(borrow)]
    metadata: ManagedMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedMetadata<'a> {
    #[serde(borrow)]
    managed_fields: &'a RawValue,
}

/// Returns the text of an object without its managed fields, which nothing here reads: their trees take most of the time of reading an object.
fn without_managed_fields(text: &str) -> Cow<'_, str> {
    match serde_json::from_str::<Managed<'_>>(text) {
        Ok(Managed { metadata }) if metadata.managed_fields.get().starts_with("[{") => {
            let managed = metadata.managed_fields.get();
            // Where it was read, because a search for a text of a KiB takes longer than all else here.
            let (before, rest) = text.split_at(managed.as_ptr().addr() - text.as_ptr().addr());
            [before, "null", &rest[managed.len()..]].concat().into()
        }
        _ => text.into(),
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|invalid| &mut invalid.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const GOOD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"good","resourceVersion":"1"},"spec":{"containers":[]}}"#;
    const BAD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bad","resourceVersion":"2"},"spec":{"containers":"none"}}"#;

    fn names(objects: &[Guarded<Pod>]) -> Vec<(&str, bool)> {
        objects.iter().map(|object| (object.meta().name.as_deref().unwrap(), object.0.is_ok())).collect()
    }

    #[test]
    fn a_list_is_read_whatever_one_of_its_objects_is() {
        let list = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{GOOD},{BAD}]}}"#);
        let list: ObjectList<Guarded<Pod>> = serde_json::from_str(&list).unwrap();
        assert_eq!(names(&list.items), [("good", true), ("bad", false)]);
        assert!(list.items[1].0.as_ref().unwrap_err().error.contains("invalid type: string \"none\", expected"));
    }

    #[test]
    fn an_event_is_read_whatever_its_object_is() {
        for (object, expected) in [(GOOD, ("good", true)), (BAD, ("bad", false))] {
            let WatchEvent::Added(object) = serde_json::from_str(&format!(r#"{{"type":"ADDED","object":{object}}}"#)).unwrap() else { panic!() };
            assert_eq!(names(&[object]), [expected]);
        }
    }

    #[test]
    fn managed_fields_are_left_out_and_nothing_else() {
        let managed = r#"[{"manager":"capw","operation":"Apply","fieldsV1":{"f:spec":{"f:containers":{}}}}]"#;
        let note = serde_json::to_string(managed).unwrap();
        let text = |managed: &str| {
            format!(
                r#"{{"metadata":{{"annotations":{{"note":{note}}},"name":"good","managedFields":{managed},"uid":"u"}},"spec":{{"containers":[]}}}}"#
            )
        };
        let Guarded::<Pod>(Ok(pod)) = serde_json::from_str(&text(managed)).unwrap() else { panic!() };
        assert_eq!(without_managed_fields(&text(managed)), text("null"));
        assert_eq!((pod.metadata.managed_fields, pod.metadata.uid.as_deref()), (None, Some("u")));
        assert_eq!(pod.metadata.annotations.unwrap()["note"], managed, "a user's text that looks like them stays");
        for whole in [text("[]"), text("null"), text("7"), GOOD.to_owned(), "7".to_owned()] {
            assert_eq!(without_managed_fields(&whole), whole);
        }
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        serde_json::from_str::<Guarded<Pod>>("7").unwrap_err();
        serde_json::from_str::<Guarded<Pod>>(r#"{"metadata": "none"}"#).unwrap_err();
    }
}
