//! Decides in which version the objects of a kind are stored, and how to migrate all of them to it (`docs/versions.md#stored-versions`).

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

/// The work that remains for the objects of a definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Migration {
    /// The resource and the version in which the objects are listed.
    pub resource: ApiResource,
    /// Whether the kind has a `/status` to write: admission of specs does not apply there.
    status: bool,
    /// The version in which all objects are to be stored.
    pub storage: String,
    /// Whether some objects may be stored in another version.
    pub outdated: bool,
    /// The served versions, as `GROUP/VERSION`.
    served: Vec<String>,
}

/// Whether objects may be stored in another version than the current storage version.
pub fn is_outdated(definition: &Definition) -> bool {
    let storage = definition.spec.versions.iter().filter(|version| version.storage).map(|version| &version.name);
    !definition.status.iter().flat_map(|status| &status.stored_versions).eq(storage)
}

/// Returns the migration; `None` if this generation of the definition was handled already, or is the first.
pub fn decide(definition: &Definition) -> Result<Option<Migration>, DefinitionError> {
    let outdated = is_outdated(definition);
    // A definition that was never changed has no objects in another version. Recording that would cost a write.
    let is_first = definition.metadata.generation == Some(1);
    if !outdated && (is_first || annotated(definition) == generation(definition)) {
        return Ok(None);
    }
    let versions = &definition.spec.versions;
    let storage = versions.iter().find(|version| version.storage).ok_or(DefinitionError::NothingStored)?;
    // A write in any served version is stored in etcd in the storage version.
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
    /// A merge patch that conflicts if another write came after the read.
    pub patch: Value,
    /// Whether the patch is for `/status` and not for the object. The API server accepts `managedFields` only in writes of the object.
    pub status: bool,
    /// Whether the patch removes entries of `managedFields`, which another client's write would not do.
    pub drops_managers: bool,
}

/// Returns the write that an object needs; `None` if it needs none.
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
        // Without any entry, the applier of the next server-side apply would share every field with an unknown manager.
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

/// The merge patch of `/status` after all objects were written: etcd holds no other version.
pub fn stored(definition: &Definition, migration: &Migration) -> Value {
    json!({"metadata": {"resourceVersion": definition.metadata.resource_version}, "status": {"storedVersions": [migration.storage]}})
}

/// The merge patch that records that this generation of the definition was handled. A newer state has another generation.
pub fn observed(definition: &Definition) -> Value {
    json!({"metadata": {"annotations": {OBSERVED_GENERATION: generation(definition)}}})
}

#[cfg(test)]
mod tests;
