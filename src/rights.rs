//! Rights that `config/rbac` must not grant.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Returns the documents of a file, by its path from the top.
fn documents(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// Returns the resources in those rules of a role that have one of the verbs.
fn resources<'a>(role: &'a Value, verbs: &[&str]) -> Vec<&'a str> {
    let texts = |rule: &'a Value, field: &str| rule[field].as_array().unwrap().iter().map(|text| text.as_str().unwrap());
    let rules = role["rules"].as_array().unwrap().iter().filter(|rule| texts(rule, "verbs").any(|verb| verbs.contains(&verb)));
    rules.flat_map(|rule| texts(rule, "resources")).collect()
}

/// The holder of a readable token can create a node. The built-in role `edit` reads Secrets.
#[test]
fn the_built_in_role_edit_makes_no_token() {
    const MAKE_TOKENS: [&str; 5] =
        ["windowsbootstrapconfigs", "windowsbootstrapconfigtemplates", "windowsmachines", "windowsnodepools", "windowsnodepools/scale"];
    let writes = ["create", "update", "patch"];
    let roles = documents("config/rbac/users/roles.yaml");
    let aggregated = |to: &str| {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        let roles = roles.iter().filter(move |role| role["metadata"]["labels"][&label] == "true");
        roles.flat_map(|role| resources(role, &writes)).collect::<Vec<_>>()
    };
    for resource in MAKE_TOKENS {
        assert!(!aggregated("view").contains(&resource) && !aggregated("edit").contains(&resource), "{resource}");
        assert!(aggregated("admin").contains(&resource), "{resource}: no role may make it");
    }
    assert!(aggregated("edit").contains(&"windowsmachinetemplates"));
}

/// The roles name exactly the definitions that CAPW migrates.
#[test]
fn rights_to_definitions_name_those_of_their_part() {
    for (part, group) in [
        ("infrastructure", "infrastructure.cluster.x-k8s.io"),
        ("bootstrap", "bootstrap.cluster.x-k8s.io"),
        ("control-plane", "controlplane.cluster.x-k8s.io"),
    ] {
        let mut own: Vec<String> = crate::api::definition::names().into_iter().filter(|(of, _)| of == group).map(|(_, name)| name).collect();
        own.sort();
        let roles = documents(&format!("config/rbac/{part}/definitions.yaml"));
        let rules = roles[0]["rules"].as_array().unwrap();
        let named: Vec<&Value> = rules.iter().filter(|rule| rule["apiGroups"][0] == "apiextensions.k8s.io").collect();
        assert_eq!(named.len(), 2, "{part}: the definition, and its status");
        for rule in named {
            assert_eq!(rule["resourceNames"], serde_json::json!(own), "{part}");
        }
    }
}
