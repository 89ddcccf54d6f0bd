//! SOAP as vSphere uses it: requests in an envelope, references to managed objects, and the parts of an XML document.

use std::fmt;

use roxmltree::Node;

use crate::xml::{Element, element};

pub const ENVELOPE: &str = "http://schemas.xmlsoap.org/soap/envelope/";
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
