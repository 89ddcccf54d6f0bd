//! The policies and their bindings, built from the rules.

use serde_json::{Value, json};

use super::rules::{Effect, IS_FOR_WINDOWS, RULES, Rule, VARIABLES};
use crate::api::components::ValidationMode;
use crate::api::listing::Listing;
use crate::components::plan::labels;

const API: &str = "admissionregistration.k8s.io";
pub const POLICY: Listing = Listing::new(API, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies");
pub const BINDING: Listing = Listing::new(API, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");

/// The objects to which a policy applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// New pods, and ephemeral containers that are added to a pod.
    Pods,
    /// Objects with pod templates that people write. ReplicaSets are not included, because Deployments create them.
    Workloads,
}

/// A policy, and the binding of the same name with the actions.
struct Policy {
    name: &'static str,
    subject: Subject,
    /// The policy has the rules with these effects.
    effects: &'static [Effect],
    /// The actions if a rule is broken.
    actions: Actions,
}

/// The reaction of an API server to an object that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actions {
    /// The API server warns.
    Warn,
    /// The API server warns and writes to the audit log, or denies the object if the user chose that. Only one policy may write its broken rules to
    /// the audit log: API servers keep one such entry per request, and log an error for each further entry.
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go>
    /// (`publishValidationFailureAnnotation`)
    WarnOrDeny,
}

const POLICIES: [Policy; 3] = [
    Policy { name: "capw-windows-pods", subject: Subject::Pods, effects: &[Effect::Fails], actions: Actions::WarnOrDeny },
    Policy { name: "capw-windows-advice", subject: Subject::Pods, effects: &[Effect::Ignored], actions: Actions::Warn },
    Policy { name: "capw-windows-workloads", subject: Subject::Workloads, effects: &[Effect::Fails, Effect::Ignored], actions: Actions::Warn },
];

/// Returns the policies and their bindings, in the order in which they must be applied.
pub fn objects(validation: ValidationMode) -> Vec<Value> {
    let denies = match validation {
        ValidationMode::Off => return Vec::new(),
        ValidationMode::Warn => false,
        ValidationMode::Deny => true,
    };
    POLICIES.iter().flat_map(|policy| [policy.object(), policy.binding(denies)]).collect()
}

/// The names of the policies, which are also the names of their bindings.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|policy| policy.name)
}

impl Policy {
    fn object(&self) -> Value {
        let rules = RULES.iter().filter(|rule| self.effects.contains(&rule.effect));
        let validations: Vec<Value> = rules.map(|rule| json!({"expression": expression(rule), "message": rule.message})).collect();
        let variables = [("template", self.subject.template())].into_iter().chain(VARIABLES);
        json!({
            "apiVersion": POLICY.api_version(),
            "kind": POLICY.kind,
            "metadata": {"name": self.name, "labels": labels("policies")},
            "spec": {
                "failurePolicy": "Ignore",
                "matchConstraints": {"resourceRules": self.subject.resource_rules()},
                "matchConditions": self.subject.conditions(),
                "variables": variables.map(|(name, expression)| json!({"name": name, "expression": expression})).collect::<Vec<_>>(),
                "validations": validations,
            },
        })
    }

    fn binding(&self, denies: bool) -> Value {
        let actions = match (self.actions, denies) {
            (Actions::Warn, _) => json!(["Warn"]),
            (Actions::WarnOrDeny, false) => json!(["Warn", "Audit"]),
            (Actions::WarnOrDeny, true) => json!(["Deny"]),
        };
        json!({
            "apiVersion": BINDING.api_version(),
            "kind": BINDING.kind,
            "metadata": {"name": self.name, "labels": labels("policies")},
            "spec": {"policyName": self.name, "validationActions": actions},
        })
    }
}

/// Returns an expression that is true if the rule is kept.
fn expression(rule: &Rule) -> String {
    // Adding a container to a pod cannot change the pod's own fields.
    let pod = rule.of_pod.map(|wrong| format!("!variables.isDebugged && ({wrong})"));
    let containers = rule.of_container.map(|wrong| format!("variables.containers.exists(c, {wrong})"));
    match (pod, containers) {
        (Some(pod), Some(containers)) => format!("!({pod} || {containers})"),
        (one, other) => format!("!({})", one.or(other).unwrap_or_default()),
    }
}

impl Subject {
    fn resource_rules(self) -> Value {
        let rule = |group: &str, operations: &[&str], resources: &[&str]| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": resources});
        match self {
            Self::Pods => json!([rule("", &["CREATE"], &["pods"]), rule("", &["UPDATE"], &["pods/ephemeralcontainers"])]),
            Self::Workloads => {
                let written = ["CREATE", "UPDATE"];
                json!([rule("apps", &written, &["deployments", "daemonsets", "statefulsets"]), rule("batch", &written, &["jobs", "cronjobs"])])
            }
        }
    }

    /// The pod, or the pod template, untyped: containers and ephemeral containers have different types, and so do different API servers.
    fn template(self) -> &'static str {
        match self {
            Self::Pods => "dyn(object)",
            Self::Workloads => "object.kind == 'CronJob' ? dyn(object).spec.jobTemplate.spec.template : dyn(object).spec.template",
        }
    }

    fn conditions(self) -> Value {
        // Conditions have no variables; `exists` on a list of one element names the pod instead.
        let is_for_windows = json!({"name": "is-for-windows", "expression": format!("[({}).spec].exists(pod, {IS_FOR_WINDOWS})", self.template())});
        // Controllers write annotations and finalizers. The generation is no help: a Deployment's generation also counts changes of annotations.
        let is_changed = json!({"name": "is-changed", "expression": "request.operation == 'CREATE' || object.spec != oldObject.spec"});
        match self {
            Self::Pods => json!([is_for_windows]),
            Self::Workloads => json!([is_changed, is_for_windows]),
        }
    }
}
