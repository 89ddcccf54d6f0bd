//! SOAP as vSphere uses it: one element in an envelope, and references to managed objects.

use std::fmt;

use roxmltree::{Document, Node};

use super::fault::{Error, Fault, NOT_AUTHENTICATED};
use crate::hypervisor::DriverError;
use crate::hypervisor::xml::{Element, element};

const ENVELOPE: &str = "http://schemas.xmlsoap.org/soap/envelope/";
const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";

/// A reference to an object that the vCenter manages, e.g. a VM.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    pub kind: String,
    pub id: String,
}

impl Reference {
    pub fn new(kind: &str, id: &str) -> Self {
        Self { kind: kind.to_owned(), id: id.to_owned() }
    }

    pub fn of(node: Node) -> Option<Self> {
        let id = text_of(node);
        // The attribute has no namespace, unlike the type of a value.
        let kind = node.attributes().find(|attribute| attribute.name() == "type" && attribute.namespace().is_none())?.value();
        (!id.is_empty()).then(|| Self::new(kind, id))
    }

    pub fn element(&self, name: &'static str) -> Element {
        element(name).attribute("type", &self.kind).text(&self.id)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

/// A request: a method of an object.
pub fn method(name: &'static str, this: &Reference) -> Element {
    element(name).attribute("xmlns", "urn:vim25").with(this.element("_this"))
}

/// A value whose type must be named.
pub fn typed(name: &'static str, kind: &str) -> Element {
    element(name).attribute("xsi:type", kind)
}

pub fn envelope(request: &Element) -> String {
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="{ENVELOPE}" xmlns:xsi="{INSTANCE}" xmlns:xsd="http://www.w3.org/2001/XMLSchema"><soapenv:Body>{request}</soapenv:Body></soapenv:Envelope>"#
    )
}

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

pub fn children<'a, 'input>(node: Node<'a, 'input>, name: &str) -> impl Iterator<Item = Node<'a, 'input>> {
    node.children().filter(move |child| child.is_element() && child.tag_name().name() == name)
}

pub fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.is_element() && child.tag_name().name() == name)
}

pub fn text_of<'a>(node: Node<'a, '_>) -> &'a str {
    node.text().unwrap_or_default().trim()
}

/// The text of the element at the path of child names.
pub fn text_at<'a>(node: Node<'a, '_>, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(node, |node, name| child(node, name)).map(text_of)
}

/// An attribute of any namespace; `type` is the type of the value.
pub fn attribute<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.attributes().find(|attribute| attribute.name() == name).map(|attribute| attribute.value())
}
