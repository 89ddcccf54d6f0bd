//! Selects the properties of objects that a vCenter reads or reports.

use super::soap::{Reference, typed};
use crate::xml::{Element, element};

/// Properties of one object, or of all objects that a list of this object names.
pub struct Selection<'s> {
    pub of: &'s Reference,
    /// Type of the objects.
    pub kind: &'static str,
    pub paths: &'s [String],
    /// `None`: the properties of the object itself. Otherwise the property that lists the objects. With `deep`, the traversal
    /// continues through listed objects of the same type as `of`.
    pub through: Option<Through>,
}

#[derive(Clone, Copy)]
pub struct Through {
    pub kind: &'static str,
    pub path: &'static str,
    pub deep: bool,
}

pub fn filter(name: &'static str, selection: &Selection) -> Element {
    spec(name, &[(selection.kind, selection.paths)], selection.of, selection.through, selection.through.is_some())
}

/// Selects properties of objects by type; with `skip`, the object `of` itself is left out.
pub fn spec(name: &'static str, properties: &[(&str, &[String])], of: &Reference, through: Option<Through>, skip: bool) -> Element {
    let properties = properties
        .iter()
        .map(|(kind, paths)| element("propSet").with(element("type").text(kind)).with_all(paths.iter().map(|path| element("pathSet").text(path))));
    let through = through.map(|Through { kind, path, deep }| {
        let again = deep.then(|| typed("selectSet", "SelectionSpec").with(element("name").text("all")));
        typed("selectSet", "TraversalSpec")
            .with(element("name").text("all"))
            .with(element("type").text(kind))
            .with(element("path").text(path))
            .with(element("skip").text(false))
            .with_all(again)
    });
    let objects = element("objectSet").with(of.element("obj")).with(element("skip").text(skip)).with_all(through);
    element(name).with_all(properties).with(objects)
}
