//! The answer to a request: the values that it returns, or the fault in it.

use std::fmt;

use roxmltree::{Document, Node};

use super::fault::{Error, Fault, NOT_AUTHENTICATED};
use super::soap::{ENVELOPE, child, children};
use crate::hypervisor::DriverError;

/// An answer that is not a fault.
#[derive(Debug)]
pub struct Answer(String);

impl Answer {
    pub fn new(text: String) -> Result<Self, Error> {
        let document = Document::parse(&text).map_err(|error| unreadable(&error))?;
        let body = document.descendants().find(|node| node.has_tag_name((ENVELOPE, "Body"))).ok_or_else(|| unreadable(&"it is no envelope"))?;
        if let Some(fault) = body.children().find(|node| node.has_tag_name((ENVELOPE, "Fault"))) {
            return Err(Error::Fault(Fault::of_answer(fault)));
        }
        // A vCenter leaves out properties of objects one by one, each with a fault.
        let missing = body.descendants().filter(|node| node.tag_name().name() == "missingSet").filter_map(|node| child(node, "fault"));
        if let Some(fault) = missing.map(Fault::of_localized).find(|fault| fault.is(&[NOT_AUTHENTICATED])) {
            return Err(Error::Fault(fault));
        }
        Ok(Self(text))
    }

    /// The results of `read` for the returned values.
    pub fn values<T>(&self, read: impl FnMut(Node) -> Option<T>) -> Result<Vec<T>, Error> {
        let document = Document::parse(&self.0).map_err(|error| unreadable(&error))?;
        let body = document.descendants().find(|node| node.has_tag_name((ENVELOPE, "Body")));
        let response = body.and_then(|body| body.first_element_child()).ok_or_else(|| unreadable(&"it is empty"))?;
        Ok(children(response, "returnval").filter_map(read).collect())
    }

    /// The single returned value, if any.
    pub fn value<T>(&self, read: impl FnMut(Node) -> Option<T>) -> Result<Option<T>, Error> {
        Ok(self.values(read)?.into_iter().next())
    }
}

pub fn unreadable(why: &dyn fmt::Display) -> Error {
    DriverError::Transient(format!("the vCenter's answer cannot be read: {why}")).into()
}
