//! Admission policies that detect pods that cannot work on Windows nodes (pure). The API server evaluates them when a client writes a pod or an
//! object from which pods are created; CAPW need not run for this.
//! <https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/>

mod policy;
mod rules;

pub use self::policy::{BINDING, POLICY, names, objects};
pub use self::rules::{Effect, RULES};

#[cfg(test)]
mod tests;
