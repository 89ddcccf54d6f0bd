//! Tests that every field has a description for `kubectl explain`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool};

use super::kinds::custom_resource_definitions;

/// Adds to `found` the fields below a schema that have no description, or one of less than four characters. Returns the number of fields.
fn unexplained(schema: &JSONSchemaProps, path: &str, found: &mut Vec<String>) -> usize {
    let mut fields = 0;
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        if field.description.as_deref().unwrap_or_default().trim().len() < 4 {
            found.push(path.clone());
        }
        fields += 1 + unexplained(field, &path, found);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        fields += unexplained(items, &format!("{path}[]"), found);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        fields += unexplained(values, &format!("{path}{{}}"), found);
    }
    fields
}

#[test]
fn every_field_is_explained() {
    let mut found = Vec::new();
    let mut fields = 0;
    for crd in custom_resource_definitions() {
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref()).unwrap();
            assert!(schema.description.as_ref().is_some_and(|d| d.len() > 20), "{}: say what the kind is", crd.spec.names.kind);
            fields += unexplained(schema, &crd.spec.names.kind, &mut found);
        }
    }
    assert!(fields > 200, "the walk finds {fields} fields: it does not see the schemas");
    assert!(found.is_empty(), "describe these fields in src/api, for `kubectl explain`:\n{}", found.join("\n"));
}
