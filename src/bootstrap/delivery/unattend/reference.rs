//! Checks answer files against Microsoft's reference for each of their settings. For tests of code that writes answer files.

use std::collections::{BTreeMap, BTreeSet};

use roxmltree::{Document, Node};
use serde::Deserialize;

const SETTINGS: &str = "urn:schemas-microsoft-com:unattend";
const ACTIONS: &str = "http://schemas.microsoft.com/WMIConfig/2002/State";
/// The identity of a component on every 64-bit edition.
const IDENTITY: [(&str, &str); 4] =
    [("processorArchitecture", "amd64"), ("publicKeyToken", "31bf3856ad364e35"), ("language", "neutral"), ("versionScope", "nonSxS")];

#[derive(Deserialize)]
struct Reference {
    /// The paths of elements that are entries of a list.
    lists: BTreeSet<String>,
    /// The settings of each component by their path below it.
    components: BTreeMap<String, BTreeMap<String, Setting>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Setting {
    /// The passes in which Windows reads the setting.
    passes: Vec<String>,
    one_of: Option<Vec<String>>,
    /// The least and the greatest value.
    integer: Option<(u32, u32)>,
    /// The greatest length in characters.
    length: Option<usize>,
}

/// The settings by pass, component and path. The second entry of a list has `[2]` after its name.
pub(crate) type Settings = BTreeMap<(String, String, String), String>;

/// Returns the settings of an answer file, and its faults.
pub(crate) fn read(xml: &str) -> (Settings, Vec<String>) {
    let reference: Reference = serde_json::from_str(include_str!("reference.json")).unwrap();
    let document = match Document::parse(xml) {
        Ok(document) => document,
        Err(error) => return (Settings::new(), vec![error.to_string()]),
    };
    let mut reader = Reader { reference: &reference, pass: String::new(), component: String::new(), settings: Settings::new(), faults: Vec::new() };
    let root = document.root_element();
    reader.named(root, "unattend");
    for settings in root.children().filter(Node::is_element) {
        reader.named(settings, "settings");
        reader.pass = settings.attribute("pass").unwrap_or_default().to_owned();
        for component in settings.children().filter(Node::is_element) {
            reader.named(component, "component");
            reader.component = component.attribute("name").unwrap_or_default().to_owned();
            let wrong = IDENTITY.into_iter().filter(|(name, value)| component.attribute(*name) != Some(value));
            wrong.for_each(|(name, value)| reader.fault(name, &format!("is not {value}")));
            reader.below(component, "", "");
        }
    }
    (reader.settings, reader.faults)
}

struct Reader<'a> {
    reference: &'a Reference,
    pass: String,
    component: String,
    settings: Settings,
    faults: Vec<String>,
}

impl Reader<'_> {
    fn fault(&mut self, path: &str, what: &str) {
        self.faults.push(format!("{} {} {path} {what}", self.pass, self.component));
    }

    fn named(&mut self, node: Node<'_, '_>, name: &str) {
        if !node.has_tag_name((SETTINGS, name)) {
            self.fault(node.tag_name().name(), &format!("is not {name}"));
        }
    }

    /// Reads the elements below a node. `path` is the node's path in the reference; `place` also has the numbers of list entries.
    fn below(&mut self, node: Node<'_, '_>, path: &str, place: &str) {
        let children: Vec<Node<'_, '_>> = node.children().filter(Node::is_element).collect();
        if children.is_empty() {
            return self.setting(path, place, node.text().unwrap_or_default());
        }
        let mut entries: BTreeMap<&str, usize> = BTreeMap::new();
        for child in children {
            let name = child.tag_name().name();
            self.named(child, name);
            let count = entries.entry(name).and_modify(|count| *count += 1).or_insert(1);
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            let place = if place.is_empty() { name.to_owned() } else { format!("{place}/{name}") };
            let place = if *count > 1 { format!("{place}[{count}]") } else { place };
            let is_entry = self.reference.lists.contains(&path);
            if is_entry != (child.attribute((ACTIONS, "action")) == Some("add")) {
                self.fault(&place, if is_entry { "is not added to its list" } else { "is no entry of a list" });
            }
            if !is_entry && *count > 1 {
                self.fault(&place, "is given twice");
            }
            let order = child.children().find(|node| node.has_tag_name((SETTINGS, "Order"))).and_then(|node| node.text());
            let order = order.or(child.attribute((ACTIONS, "keyValue")));
            if order.is_some_and(|order| order != count.to_string()) {
                self.fault(&place, "has another number than its place");
            }
            self.below(child, &path, &place);
        }
    }

    fn setting(&mut self, path: &str, place: &str, value: &str) {
        let Some(setting) = self.reference.components.get(&self.component).and_then(|settings| settings.get(path)) else {
            return self.fault(place, "is no setting");
        };
        if !setting.passes.contains(&self.pass) {
            self.fault(place, "is not read in this pass");
        }
        let number = |(least, most): (u32, u32)| value.parse::<u32>().is_ok_and(|number| (least..=most).contains(&number));
        let good = setting.integer.is_none_or(number)
            && setting.one_of.as_ref().is_none_or(|values| values.iter().any(|known| known == value))
            && setting.length.is_none_or(|most| value.encode_utf16().count() <= most)
            // Setup treats an empty value as an error.
            && !value.is_empty();
        if !good {
            self.fault(place, &format!("cannot be {value:?}"));
        }
        self.settings.insert((self.pass.clone(), self.component.clone(), place.to_owned()), value.to_owned());
    }
}

#[test]
fn what_setup_would_not_take_is_found() {
    let good = r#"<unattend xmlns="urn:schemas-microsoft-com:unattend" xmlns:wcm="http://schemas.microsoft.com/WMIConfig/2002/State">
<settings pass="windowsPE"><component name="Microsoft-Windows-Setup" processorArchitecture="amd64" publicKeyToken="31bf3856ad364e35"
  language="neutral" versionScope="nonSxS"><DiskConfiguration><Disk wcm:action="add"><DiskID>0</DiskID><CreatePartitions>
  <CreatePartition wcm:action="add"><Order>1</Order><Type>EFI</Type></CreatePartition>
  <CreatePartition wcm:action="add"><Order>2</Order><Size>16</Size></CreatePartition>
  </CreatePartitions></Disk></DiskConfiguration><UserData><ProductKey><Key>AAAAA-BBBBB-CCCCC-DDDDD-12345</Key></ProductKey></UserData>
</component></settings></unattend>"#;
    let (settings, faults) = read(good);
    assert_eq!(faults, [""; 0]);
    let second = "DiskConfiguration/Disk/CreatePartitions/CreatePartition[2]/Size";
    assert_eq!(settings[&("windowsPE".to_owned(), "Microsoft-Windows-Setup".to_owned(), second.to_owned())], "16");
    for (part, slip, said) in [
        ("</settings>", "", "expected"),
        ("unattend xmlns", "unattend wcm:a=\"\" xmlns:b", "is not unattend"),
        ("<component", "<Component", "expected"),
        ("windowsPE", "specialize", "is not read in this pass"),
        ("neutral", "en-US", "language is not neutral"),
        ("Microsoft-Windows-Setup", "Microsoft-Windows-Shell-Setup", "is no setting"),
        ("<DiskID>0</DiskID>", "<Size>0</Size>", "Disk/Size is no setting"),
        ("<Disk wcm:action=\"add\">", "<Disk>", "Disk is not added to its list"),
        ("<UserData>", "<UserData wcm:action=\"add\">", "UserData is no entry of a list"),
        ("<DiskID>0</DiskID>", "<DiskID>0</DiskID><DiskID>1</DiskID>", "DiskID[2] is given twice"),
        ("<Order>2</Order>", "<Order>1</Order>", "has another number than its place"),
        ("<Size>16", "<Size>16 MB", "Size cannot be \"16 MB\""),
        ("<Size>16", "<Size>0", "Size cannot be \"0\""),
        ("EFI", "ESP", "Type cannot be \"ESP\""),
        ("12345", "123456", "Key cannot be"),
        ("AAAAA-BBBBB-CCCCC-DDDDD-12345", "", "Key cannot be \"\""),
    ] {
        let bad = good.replacen(part, slip, 1);
        assert_ne!(bad, good, "{part}");
        let (_, faults) = read(&bad);
        assert!(faults.iter().any(|fault| fault.contains(said)), "{slip}: {faults:?}");
    }
}
