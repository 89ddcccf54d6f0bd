//! Which version the objects of a kind are stored in, and what brings all of them to one (`docs/versions.md#stored-versions`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta};
use kube::api::ApiResource;
use serde_json::{Value, json};
use thiserror::Error;

use crate::api::definition::{Definition, OBSERVED_GENERATION, Version};

/// A definition that no API server accepts.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DefinitionError {
    #[error("no version is stored")]
    NothingStored,
    #[error("no version is served")]
    NothingServed,
}

/// What is to do for the objects of a definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Migration {
    /// How the objects are asked for.
    pub resource: ApiResource,
    /// Whether there is a `/status` to write: admission of specs has no say there.
    status: bool,
    /// The version that all objects are to be stored in.
    pub storage: String,
    /// Whether some may be stored in another one.
    pub outdated: bool,
    /// `GROUP/VERSION` of what is served.
    served: Vec<String>,
}

/// Whether objects may be stored in another version than the one that is written today.
pub fn is_outdated(definition: &Definition) -> bool {
    let storage = definition.spec.versions.iter().filter(|version| version.storage).map(|version| &version.name);
    !definition.status.iter().flat_map(|status| &status.stored_versions).eq(storage)
}

/// `None`: this state of the definition was worked off, or it is the first one.
pub fn decide(definition: &Definition) -> Result<Option<Migration>, DefinitionError> {
    let outdated = is_outdated(definition);
    // Of a definition that was never changed, no object is of another version, and a note of that would be a write.
    let is_first = definition.metadata.generation == Some(1);
    if !outdated && (is_first || annotated(definition) == generation(definition)) {
        return Ok(None);
    }
    let versions = &definition.spec.versions;
    let storage = versions.iter().find(|version| version.storage).ok_or(DefinitionError::NothingStored)?;
    // A write in any version that is served ends in etcd in the stored one.
    let spoken = Some(storage).filter(|version| version.served).or_else(|| versions.iter().find(|version| version.served));
    let spoken = spoken.ok_or(DefinitionError::NothingServed)?;
    let group_version = |version: &Version| format!("{}/{}", definition.spec.group, version.name);
    Ok(Some(Migration {
        resource: ApiResource {
            group: definition.spec.group.clone(),
            version: spoken.name.clone(),
            api_version: group_version(spoken),
            kind: definition.spec.names.kind.clone(),
            plural: definition.spec.names.plural.clone(),
        },
        status: spoken.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some()),
        storage: storage.name.clone(),
        outdated,
        served: versions.iter().filter(|version| version.served).map(group_version).collect(),
    }))
}

fn annotated(definition: &Definition) -> Option<String> {
    definition.metadata.annotations.as_ref()?.get(OBSERVED_GENERATION).cloned()
}

fn generation(definition: &Definition) -> Option<String> {
    definition.metadata.generation.map(|generation| generation.to_string())
}

/// The one write that an object needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// A merge patch that another write since the read makes a conflict.
    pub patch: Value,
    /// Of `/status` and not of the object. The API server takes `managedFields` from writes of the object only.
    pub status: bool,
    /// Whether entries of `managedFields` go, which somebody else's write would not do.
    pub drops_managers: bool,
}

/// `None`: it needs none.
pub fn write(object: &ObjectMeta, migration: &Migration) -> Option<Write> {
    let stale = has_stale_managers(object, migration);
    if !migration.outdated && !stale {
        return None;
    }
    let mut metadata = json!({"resourceVersion": object.resource_version});
    if stale && let Value::Object(fields) = &mut metadata {
        fields.insert("managedFields".to_owned(), json!(current_managers(object, migration)));
    }
    Some(Write { patch: json!({"metadata": metadata}), status: migration.status && !stale, drops_managers: stale })
}

/// Whether fields are managed in a version that is not served: every server-side apply of such an object fails.
fn has_stale_managers(object: &ObjectMeta, migration: &Migration) -> bool {
    object.managed_fields.iter().flatten().any(|entry| !is_served(entry, migration))
}

fn current_managers(object: &ObjectMeta, migration: &Migration) -> Vec<ManagedFieldsEntry> {
    let all = || object.managed_fields.iter().flatten();
    let kept: Vec<_> = all().filter(|entry| is_served(entry, migration)).cloned().collect();
    match all().next() {
        // Without any entry the next server-side apply would make its applier share every field with an unknown one.
        Some(first) if kept.is_empty() => vec![ManagedFieldsEntry {
            api_version: Some(migration.resource.api_version.clone()),
            fields_v1: Some(FieldsV1(json!({"f:metadata": {"f:name": {}}}))),
            subresource: None,
            ..first.clone()
        }],
        _ => kept,
    }
}

fn is_served(entry: &ManagedFieldsEntry, migration: &Migration) -> bool {
    entry.api_version.as_ref().is_none_or(|version| migration.served.contains(version))
}

/// The merge patch of `/status` after all objects were written: no other version is in etcd.
pub fn stored(definition: &Definition, migration: &Migration) -> Value {
    json!({"metadata": {"resourceVersion": definition.metadata.resource_version}, "status": {"storedVersions": [migration.storage]}})
}

/// The merge patch that says that this state of the definition was worked off. A newer state has another generation.
pub fn observed(definition: &Definition) -> Value {
    json!({"metadata": {"annotations": {OBSERVED_GENERATION: generation(definition)}}})
}

#[cfg(test)]
mod tests;
