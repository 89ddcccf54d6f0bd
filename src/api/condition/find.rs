//! Questions to the conditions of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::reason::Reason;

/// Returns the condition of this type, if it exists.
pub fn find(conditions: &[Condition], type_: impl AsRef<str>) -> Option<&Condition> {
    conditions.iter().find(|c| c.type_ == type_.as_ref())
}

/// Returns the problem that a condition reports, if its reason is a problem and one of ours.
pub fn problem(condition: &Condition) -> Option<Reason> {
    Reason::from_name(&condition.reason).filter(|reason| reason.is_problem())
}

/// Whether the condition exists and is `True`.
pub fn is_true(conditions: &[Condition], type_: impl AsRef<str>) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == "True")
}
