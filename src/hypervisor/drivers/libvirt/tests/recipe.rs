//! The checks of the recipe for a Windows image (docs/hypervisors/libvirt-image.md) that need no Windows.

use std::path::PathBuf;

use hcl::{Body, Expression, Structure};

/// The options of Packer's `qemu` builder and of its CDs, from their documentation (packer-plugin-qemu 1.1).
const OPTIONS: [&str; 25] = [
    "accelerator",
    "boot_command",
    "boot_wait",
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
    "qemuargs",
    "shutdown_timeout",
    "vm_name",
    "vtpm",
];

fn text(name: &str) -> String {
    std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/image").join(name)).unwrap()
}

fn recipe() -> Body {
    hcl::parse(&text("qemu/windows.pkr.hcl")).unwrap()
}

/// Lists the blocks of a kind, by their last label.
fn blocks<'a>(body: &'a Body, kind: &str) -> Vec<(&'a str, &'a Body)> {
    let blocks = body.blocks().filter(|block| block.identifier.as_str() == kind);
    blocks.map(|block| (block.labels.last().map_or("", |label| label.as_str()), &block.body)).collect()
}

fn attribute<'a>(body: &'a Body, name: &str) -> &'a Expression {
    body.attributes().find(|attribute| attribute.key.as_str() == name).map(|attribute| &attribute.expr).unwrap_or_else(|| panic!("no {name}"))
}

/// Lists the names after `var.` in a text.
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
    assert_eq!(blocks(&recipe, "build").len(), 1);
}

#[test]
fn packer_waits_for_the_machine_to_switch_itself_off() {
    let recipe = recipe();
    let [("windows", source)] = blocks(&recipe, "source")[..] else { panic!("one source") };
    assert_eq!(*attribute(source, "communicator"), Expression::from("none"));
    let [(_, packer)] = blocks(&recipe, "packer")[..] else { panic!("one block of settings") };
    let [(_, plugins)] = blocks(packer, "required_plugins")[..] else { panic!("one list of plugins") };
    // With this communicator, version 1.1.2 stops the machine instead.
    assert!(attribute(plugins, "qemu").to_string().contains(">= 1.1.3"));
}
