//! What a role of Kubernetes grants, right by right.

use serde_json::{Value, json};

/// One verb on one resource.
#[derive(Clone, PartialEq)]
pub struct Right {
    pub group: String,
    /// With its subresource: `nodes/status`.
    pub resource: String,
    pub verb: String,
    /// Of the objects that it is for; null: all.
    names: Value,
}

impl Right {
    /// All that a role grants. Its rules are for resources.
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

    /// Whether it is this right, or one for more names.
    pub fn has(&self, other: &Self) -> bool {
        let is_same = (&self.group, &self.resource, &self.verb) == (&other.group, &other.resource, &other.verb);
        is_same
            && self.names.as_array().is_none_or(|names| other.names.as_array().is_some_and(|others| others.iter().all(|name| names.contains(name))))
    }

    /// A rule that grants this and nothing else.
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
