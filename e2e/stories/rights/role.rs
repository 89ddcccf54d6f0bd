//! The rights that a role of Kubernetes grants, one by one.

use serde_json::{Value, json};

/// One verb on one resource.
#[derive(Clone, PartialEq)]
pub struct Right {
    pub group: String,
    /// The resource with its subresource, e.g. `nodes/status`.
    pub resource: String,
    pub verb: String,
    /// Names of the objects that the right covers; null: all objects.
    names: Value,
}

impl Right {
    /// All rights of a role. Its rules must be for resources.
    pub fn all(role: &Value) -> Vec<Self> {
        let texts = |rule: &Value, field: &str| -> Vec<String> {
            let list = rule[field].as_array().unwrap_or_else(|| panic!("a rule without {field}: {rule}"));
            list.iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
        };
        let mut all = Vec::new();
        for rule in role["rules"].as_array().expect("a role has rules") {
            for (group, resource) in texts(rule, "apiGroups").iter().flat_map(|g| texts(rule, "resources").into_iter().map(move |r| (g.clone(), r))) {
                let right = |verb| Self { group: group.clone(), resource: resource.clone(), verb, names: rule["resourceNames"].clone() };
                all.extend(texts(rule, "verbs").into_iter().map(right));
            }
        }
        all
    }

    /// Whether this right covers the other right.
    pub fn has(&self, other: &Self) -> bool {
        let is_same = (&self.group, &self.resource, &self.verb) == (&other.group, &other.resource, &other.verb);
        is_same
            && self.names.as_array().is_none_or(|names| other.names.as_array().is_some_and(|others| others.iter().all(|name| names.contains(name))))
    }

    /// A rule that grants only this right.
    pub fn rule(&self) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]});
        if !self.names.is_null() {
            rule["resourceNames"] = self.names.clone();
        }
        rule
    }

    /// `VERB GROUP/RESOURCE[/SUBRESOURCE]`
    pub fn name(&self) -> String {
        format!("{} {}/{}", self.verb, self.group, self.resource)
    }
}
