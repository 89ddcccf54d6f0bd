use crate::kinds::definitions::decide::*;

/// A definition with versions written as `NAME`, with `+` in front of the stored version and `-` in front of versions that are not served.
fn definition(versions: &[&str], stored: &[&str], observed: Option<&str>) -> Definition {
    let versions = versions.iter().map(|version| {
        let name = version.trim_start_matches(['+', '-']);
        json!({"name": name, "served": !version.contains('-'), "storage": version.contains('+'), "subresources": {"status": {}}})
    });
    let annotations = observed.map(|generation| json!({OBSERVED_GENERATION: generation}));
    let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "xs.a.b", "generation": 3, "resourceVersion": "7", "annotations": annotations},
        "spec": {"group": "a.b", "names": {"kind": "X", "plural": "xs"}, "versions": versions.collect::<Vec<_>>()},
        "status": {"storedVersions": stored}});
    serde_json::from_value(object).unwrap()
}

/// An object whose fields are managed in these versions.
fn object(versions: &[&str]) -> ObjectMeta {
    let entries = versions.iter().map(|version| {
        json!({"manager": "m", "operation": "Apply", "apiVersion": format!("a.b/{version}"), "subresource": "status", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}})
    });
    serde_json::from_value(json!({"name": "o", "namespace": "n", "resourceVersion": "1", "managedFields": entries.collect::<Vec<_>>()})).unwrap()
}

#[test]
fn only_what_was_worked_off_and_is_stored_in_one_version_is_left_alone() {
    for (versions, stored, observed, outdated, works) in [
        (&["+v1"][..], &["v1"][..], Some("3"), false, false),
        (&["+v1"], &["v1"], Some("2"), false, true),
        (&["+v1"], &["v1"], None, false, true),
        (&["v0", "+v1"], &["v0", "v1"], None, true, true),
        (&["v0", "+v1"], &["v1", "v0"], Some("3"), true, true),
        (&["v0", "+v1"], &["v0"], Some("3"), true, true),
        (&["+v1"], &[], Some("3"), true, true),
    ] {
        let definition = definition(versions, stored, observed);
        let migration = decide(&definition).unwrap();
        assert_eq!((is_outdated(&definition), migration.is_some()), (outdated, works), "{versions:?} {stored:?} {observed:?}");
        assert!(migration.is_none_or(|migration| migration.outdated == outdated && migration.storage == "v1"));
    }
}

/// The state after an installation.
#[test]
fn a_definition_that_was_never_changed_needs_no_note() {
    for (versions, stored, works) in [(&["+v1"][..], &["v1"][..], false), (&["v0", "+v1"], &["v1"], false), (&["v0", "+v1"], &["v0", "v1"], true)] {
        let mut definition = definition(versions, stored, None);
        definition.metadata.generation = Some(1);
        assert_eq!(decide(&definition).unwrap().is_some(), works, "{versions:?} {stored:?}");
    }
}

#[test]
fn objects_are_asked_for_in_the_stored_version_if_it_is_served() {
    let spoken = |versions: &[&str]| decide(&definition(versions, &[], None)).map(|migration| migration.unwrap().resource.api_version);
    assert_eq!(spoken(&["v0", "+v1"]), Ok("a.b/v1".to_owned()));
    assert_eq!(spoken(&["-v0", "v1", "-+v2"]), Ok("a.b/v1".to_owned()));
    assert_eq!(spoken(&["-+v1"]), Err(DefinitionError::NothingServed));
    assert_eq!(spoken(&["v1"]), Err(DefinitionError::NothingStored));
}

#[test]
fn status_is_written_only_where_there_is_one() {
    let mut definition = definition(&["+v1"], &[], None);
    assert!(decide(&definition).unwrap().unwrap().status);
    definition.spec.versions[0].subresources = None;
    assert!(!decide(&definition).unwrap().unwrap().status);
}

#[test]
fn an_object_is_written_once_and_only_if_it_needs_it() {
    let migration = |stored: &[&str]| decide(&definition(&["-v0", "+v1"], stored, None)).unwrap().unwrap();
    let (outdated, current) = (migration(&["v0", "v1"]), migration(&["v1"]));
    assert_eq!(write(&object(&["v1"]), &current), None);
    assert_eq!(write(&object(&[]), &current), None);
    let unchanged = Write { patch: json!({"metadata": {"resourceVersion": "1"}}), status: true, drops_managers: false };
    assert_eq!(write(&object(&["v1"]), &outdated), Some(unchanged));
    for migration in [&outdated, &current] {
        let Write { patch, status, drops_managers } = write(&object(&["v0", "v1", "v0"]), migration).unwrap();
        assert!(!status && drops_managers, "a write of /status keeps all entries");
        assert_eq!(patch["metadata"]["resourceVersion"], "1");
        let kept = patch["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(kept.iter().map(|entry| &entry["apiVersion"]).collect::<Vec<_>>(), ["a.b/v1"]);
        assert_eq!(kept[0]["fieldsV1"], json!({"f:spec": {}}));
    }
}

/// The API server would treat an empty list as "everything is managed by somebody before the first apply".
#[test]
fn an_object_never_loses_its_last_manager() {
    let migration = decide(&definition(&["-v0", "+v1"], &["v1"], None)).unwrap().unwrap();
    let patch = write(&object(&["v0"]), &migration).unwrap().patch;
    let [seed] = patch["metadata"]["managedFields"].as_array().unwrap().as_slice() else { panic!("{patch}") };
    assert_eq!((&seed["apiVersion"], &seed["manager"], &seed["subresource"]), (&json!("a.b/v1"), &json!("m"), &Value::Null));
    assert_eq!(seed["fieldsV1"], json!({"f:metadata": {"f:name": {}}}));
}

#[test]
fn a_definition_that_changed_meanwhile_keeps_its_stored_versions() {
    let definition = definition(&["v0", "+v1"], &["v0", "v1"], None);
    let migration = decide(&definition).unwrap().unwrap();
    assert_eq!(stored(&definition, &migration), json!({"metadata": {"resourceVersion": "7"}, "status": {"storedVersions": ["v1"]}}));
    assert_eq!(observed(&definition), json!({"metadata": {"annotations": {OBSERVED_GENERATION: "3"}}}));
}
