//! Images of content libraries: `library:LIBRARY/ITEM`. The item of a VM template names a template of the inventory, which is cloned
//! like any other template.

use serde_json::{Value, json};

use super::client::Client;
use super::rest::Rest;
use super::soap::Reference;
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::listed;
use crate::vm::Thing;

/// The prefix of an image in a content library.
const SCHEME: &str = "library:";
const LIBRARIES: &str = "/rest/com/vmware/content/library";
const ITEMS: &str = "/rest/com/vmware/content/library/item";
/// The type of an item that is a VM template.
const VM_TEMPLATE: &str = "vm-template";
/// The most names that are read for the list in an error.
const LISTED: usize = 20;

/// An item of a content library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    library: &'a str,
    name: &'a str,
}

impl<'a> Item<'a> {
    /// Parses the name of an image; `None`: the image is not in a content library.
    pub fn of(image: &'a str) -> Option<Result<Self, DriverError>> {
        let (library, name) = image.strip_prefix(SCHEME)?.split_once('/').unwrap_or_default();
        Some(if library.is_empty() || name.is_empty() {
            Err(DriverError::Invalid(format!("image {image:?}: an image of a content library is written library:LIBRARY/ITEM")))
        } else {
            Ok(Self { library, name })
        })
    }

    /// Finds the VM template that the item names.
    pub async fn template(self, client: &Client) -> Result<Reference, DriverError> {
        let rest = Rest::begin(client).await?;
        let found = self.find(client, &rest).await;
        rest.end().await;
        found
    }

    async fn find(self, client: &Client, rest: &Rest<'_>) -> Result<Reference, DriverError> {
        let Self { library, name } = self;
        let missing = |text: String| Err(DriverError::Missing { thing: Thing::Image, text });
        let at = format!("image \"{SCHEME}{library}/{name}\": {}", client.server());
        let libraries = ids(rest.post("FindLibrary", &format!("{LIBRARIES}?~action=find"), &json!({"spec": {"name": library}})).await?);
        let id = match libraries.as_slice() {
            [id] => id,
            [] => {
                let all = ids(rest.get("ListLibraries", LIBRARIES).await?);
                let there = names(rest, LIBRARIES, &all).await?;
                return missing(format!(
                    "{at} has no content library {library:?}; those that the user may see: {there}. Correct spec.image of the machine or spec.images of the WindowsHypervisor"
                ));
            }
            _ => return Err(DriverError::Invalid(format!("{at} has {} content libraries {library:?}: rename all but one of them", libraries.len()))),
        };
        let items = ids(rest.post("FindItem", &format!("{ITEMS}?~action=find"), &json!({"spec": {"library_id": id, "name": name}})).await?);
        let Some(item) = items.first() else {
            let all = ids(rest.get("ListItems", &format!("{ITEMS}?library_id={id}")).await?);
            let there = names(rest, ITEMS, &all).await?;
            return missing(format!(
                "{at} has no item {name:?} in content library {library:?}; it has {there}. Correct spec.image of the machine or spec.images of the WindowsHypervisor"
            ));
        };
        let described = rest.get("GetItem", &format!("{ITEMS}/id:{item}")).await?.unwrap_or_default();
        let kind = described.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind != VM_TEMPLATE {
            return Err(DriverError::Invalid(format!(
                "{at} has it as an item of type {kind:?}, and only {VM_TEMPLATE:?} can be cloned: deploy a VM from it, and clone that to the library as a VM template"
            )));
        }
        let template = rest.get("GetTemplate", &format!("/rest/vcenter/vm-template/library-items/{item}")).await?.unwrap_or_default();
        match template.get("vm_template").and_then(Value::as_str) {
            Some(vm) if !vm.is_empty() => Ok(Reference::new("VirtualMachine", vm)),
            _ => Err(DriverError::Invalid(format!(
                "{at} does not say which template of the inventory the item is, as a vCenter of version 7 does: name the template by its path instead"
            ))),
        }
    }
}

fn ids(answer: Option<Value>) -> Vec<String> {
    let Some(Value::Array(ids)) = answer else { return Vec::new() };
    // The ids become parts of paths.
    let is_id = |id: &String| id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    ids.into_iter().filter_map(|id| id.as_str().map(str::to_owned)).filter(is_id).collect()
}

/// Reads the names of libraries or items, for an error.
async fn names(rest: &Rest<'_>, path: &str, ids: &[String]) -> Result<String, DriverError> {
    let mut names = Vec::new();
    for id in ids.iter().take(LISTED) {
        let described = rest.get("GetName", &format!("{path}/id:{id}")).await?.unwrap_or_default();
        names.extend(described.get("name").and_then(Value::as_str).map(str::to_owned));
    }
    Ok(listed(names.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_libraries_are_told_from_paths() {
        assert_eq!(Item::of("library:gold/ws2022").unwrap().unwrap(), Item { library: "gold", name: "ws2022" });
        assert_eq!(Item::of("library:gold/a/b").unwrap().unwrap(), Item { library: "gold", name: "a/b" });
        assert!(Item::of("templates/ws2022").is_none());
        for wrong in ["library:gold", "library:/ws2022", "library:gold/", "library:"] {
            let error = Item::of(wrong).unwrap().unwrap_err();
            assert!(error.to_string().contains("library:LIBRARY/ITEM"), "{error}");
        }
    }
}
