//! The recipe for a Windows image (docs/hypervisors/libvirt-image.md): what can be said of it without a Windows.

use std::path::PathBuf;

use hcl::{Body, Expression, Structure};
use roxmltree::{Document, Node};

/// Options of Packer's `qemu` builder, of its CDs and of its WinRM, by their documentation (packer-plugin-qemu 1.1).
const OPTIONS: [&str; 30] = [
    "accelerator",
    "boot_command",
    "boot_wait",
    "cd_content",
    "cd_files",
    "cd_label",
    "cdrom_interface",
    "communicator",
    "cpus",
    "disk_discard",
    "disk_interface",
    "disk_size",
    "efi_firmware_code",
    "efi_firmware_vars",
    "format",
    "headless",
    "iso_checksum",
    "iso_url",
    "machine_type",
    "memory",
    "net_device",
    "output_directory",
    "shutdown_command",
    "shutdown_timeout",
    "vm_name",
    "vtpm",
    "winrm_password",
    "winrm_timeout",
    "winrm_use_ntlm",
    "winrm_username",
];

fn text(name: &str) -> String {
    std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/image").join(name)).unwrap()
}

fn recipe() -> Body {
    hcl::parse(&text("qemu/windows.pkr.hcl")).unwrap()
}

/// The blocks of a kind, by their last label.
fn blocks<'a>(body: &'a Body, kind: &str) -> Vec<(&'a str, &'a Body)> {
    let blocks = body.blocks().filter(|block| block.identifier.as_str() == kind);
    blocks.map(|block| (block.labels.last().map_or("", |label| label.as_str()), &block.body)).collect()
}

fn attribute<'a>(body: &'a Body, name: &str) -> &'a Expression {
    body.attributes().find(|attribute| attribute.key.as_str() == name).map(|attribute| &attribute.expr).unwrap_or_else(|| panic!("no {name}"))
}

/// Names after `var.` in a text.
fn variables(text: &str) -> Vec<String> {
    let end = |rest: &str| rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    text.split("var.").skip(1).map(|rest| rest[..end(rest)].to_owned()).collect()
}

#[test]
fn the_recipe_parses_and_names_options_and_variables_that_exist() {
    let recipe = recipe();
    let [("windows", source)] = blocks(&recipe, "source")[..] else { panic!("one source") };
    for part in source.iter() {
        let Structure::Attribute(attribute) = part else { panic!("{part:?}") };
        assert!(OPTIONS.contains(&attribute.key.as_str()), "Packer's qemu builder has no option {}", attribute.key);
    }
    assert_eq!(source.attributes().count(), OPTIONS.len(), "an option is named here and not used");
    let declared: Vec<&str> = blocks(&recipe, "variable").into_iter().map(|(name, _)| name).collect();
    let used = variables(&text("qemu/windows.pkr.hcl"));
    assert!(used.iter().all(|name| declared.contains(&name.as_str())) && declared.iter().all(|name| used.contains(&(*name).to_owned())), "{used:?}");
    let [(_, build)] = blocks(&recipe, "build")[..] else { panic!("one build") };
    let kinds: Vec<&str> = blocks(build, "provisioner").into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["windows-shell", "windows-restart", "file", "file", "windows-shell"]);
    for (_, file) in blocks(build, "provisioner").into_iter().filter(|(kind, _)| *kind == "file") {
        let source = attribute(file, "source").to_string();
        let name = source.rsplit('/').next().unwrap().trim_matches('"');
        assert!(attribute(file, "destination").to_string().contains(name) && text(name).contains("[DEFAULT]"), "{source}");
    }
}

#[test]
fn the_password_of_the_build_does_not_stay() {
    let recipe = recipe();
    let secret = blocks(&recipe, "variable").into_iter().filter(|(name, _)| ["password", "product_key"].contains(name));
    assert!(secret.map(|(_, body)| attribute(body, "sensitive")).all(|value| *value == Expression::Bool(true)));
    let shutdown = attribute(blocks(&recipe, "source")[0].1, "shutdown_command").to_string();
    let (random, sysprep) = (shutdown.find("/random").unwrap(), shutdown.find("/generalize /oobe /mode:vm").unwrap());
    assert!(random < sysprep && shutdown.contains("Unattend.xml"), "{shutdown}");
    assert!(!text("qemu/Autounattend.xml.pkrtpl").contains("AutoLogon"));
}

#[test]
fn the_answer_file_installs_to_the_last_partition_with_drivers_for_its_disk() {
    let filled = ["edition", "product_key", "drivers", "password"]
        .iter()
        .fold(text("qemu/Autounattend.xml.pkrtpl"), |text, name| text.replace(&format!("${{{name}}}"), &format!("the-{name}")));
    assert!(!filled.contains("${"), "a value that the recipe does not give");
    let recipe = recipe();
    let given = attribute(blocks(&recipe, "source")[0].1, "cd_content").to_string();
    assert!(["edition", "product_key", "drivers", "password"].iter().all(|name| given.contains(name)), "{given}");
    let document = Document::parse(&filled).unwrap();
    let all = |name: &str| document.descendants().filter(|node| node.tag_name().name() == name).collect::<Vec<_>>();
    let passes: Vec<&str> = all("settings").into_iter().filter_map(|node| node.attribute("pass")).collect();
    assert_eq!(passes, ["windowsPE", "specialize", "oobeSystem"]);
    let child =
        |node: Node, name: &str| node.children().find(|child| child.tag_name().name() == name).and_then(|child| child.text().map(str::to_owned));
    let partitions: Vec<_> = all("CreatePartition").into_iter().map(|node| (child(node, "Type").unwrap(), child(node, "Extend").is_some())).collect();
    assert_eq!(partitions, [("EFI".to_owned(), false), ("MSR".to_owned(), false), ("Primary".to_owned(), true)], "C: is last and can grow");
    assert_eq!(child(all("InstallTo")[0], "PartitionID").as_deref(), Some("3"));
    let paths: Vec<&str> = all("Path").into_iter().filter_map(|node| node.text()).collect();
    for driver in ["viostor", "NetKVM"] {
        assert_eq!(paths.iter().filter(|path| path.contains(driver) && path.ends_with(r"\the-drivers\amd64")).count(), 3, "{paths:?}");
    }
}
