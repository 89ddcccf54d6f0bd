//! The properties of a managed object, as a vCenter returns them.

use roxmltree::Node;

use super::fault::{Error, Fault};
use super::soap::{Reference, child, children, text_at, text_of};
use crate::hypervisor::DriverError;

/// The properties of one object.
#[derive(Clone, Copy)]
pub struct Properties<'a, 'input>(Node<'a, 'input>);

impl<'a, 'input> Properties<'a, 'input> {
    pub fn of(object: Node<'a, 'input>) -> Self {
        Self(object)
    }

    pub fn object(&self) -> Option<Reference> {
        child(self.0, "obj").and_then(Reference::of)
    }

    pub fn get(&self, path: &str) -> Option<Node<'a, 'input>> {
        children(self.0, "propSet").find(|set| text_at(*set, &["name"]) == Some(path)).and_then(|set| child(set, "val"))
    }

    /// All paths with their values.
    pub fn all(&self) -> impl Iterator<Item = (&'a str, Node<'a, 'input>)> {
        children(self.0, "propSet").filter_map(|set| Some((text_at(set, &["name"])?, child(set, "val")?)))
    }

    pub fn text(&self, path: &str) -> Option<&'a str> {
        self.get(path).map(text_of).filter(|text| !text.is_empty())
    }

    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    pub fn reference(&self, path: &str) -> Option<Reference> {
        self.get(path).and_then(Reference::of)
    }

    /// The error for a property that the credentials may not read: such a property must not be treated as unset.
    pub fn denied(&self) -> Option<Error> {
        let mut missing =
            children(self.0, "missingSet").filter_map(|set| Some((text_at(set, &["path"])?, Fault::of_localized(child(set, "fault")?))));
        let (path, fault) = missing.find(|(_, fault)| fault.is(&["NoPermission"]))?;
        let of = self.object().map(|object| object.id).unwrap_or_default();
        Some(DriverError::Denied(format!("the credentials may not read {path} of {of}: {}. Grant System.Read, with propagation", fault.text)).into())
    }
}
