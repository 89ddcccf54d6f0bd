//! Story *image recipe*: runs the commands of docs/hypervisors/libvirt-image.md as written. capw writes its files, xorriso unpacks one CD and builds
//! another, virt-install prints the domain, and virsh parses its commands. Only the steps that need KVM and Windows are left out.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use roxmltree::{Document, Node};

use crate::world::{step, wine};

const PAGE: &str = "docs/hypervisors/libvirt-image.md";
const PROGRAMS: [&str; 4] = ["xorriso", "isoinfo", "virt-install", "virsh"];
/// The files on the virtio-win CD that Setup and the script read, as in its releases.
const VIRTIO_WIN: [&str; 4] =
    ["viostor/2k22/amd64/viostor.inf", "NetKVM/2k22/amd64/netkvm.inf", "guest-agent/qemu-ga-x86_64.msi", "virtio-win-gt-x64.msi"];
/// A host of libvirt's test driver, after the recipe has created its volume.
const HOST: &str = "<node>
  <pool type='dir'><name>default</name><target><path>/default</path></target><volume type='file'><name>ws2022-2026-08.qcow2</name>
    <key>/default/ws2022-2026-08.qcow2</key><capacity unit='G'>40</capacity><allocation>0</allocation>
    <target><path>/default/ws2022-2026-08.qcow2</path><format type='qcow2'/></target></volume></pool>
  <network><name>default</name><bridge name='virbr0'/><forward/><ip address='192.168.122.1' netmask='255.255.255.0'/></network>
</node>";
/// The start of virsh's messages when it does not understand a command.
const NOT_UNDERSTOOD: [&str; 5] = ["doesn't support option", "unknown command", "option --", "unexpected data", "requires"];

/// Returns the commands of the page, without Packer's, because no registry has Packer.
fn commands() -> String {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).map(str::trim_start).filter(|line| !line.starts_with("packer "));
    lines.map(|line| format!("{line}\n")).collect()
}

fn found(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn run(program: &Path, arguments: &[&str], directory: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{} {arguments:?}: {said}\n{}", program.display(), String::from_utf8_lossy(&output.stderr));
    said
}

/// Creates the files that a user has before the first step.
fn prepare(directory: &Path) {
    for file in VIRTIO_WIN {
        let path = directory.join("virtio-win").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    run(Path::new("xorriso"), &["-as", "mkisofs", "-quiet", "-J", "-r", "-o", "virtio-win.iso", "virtio-win"], directory);
    for file in ["CloudbaseInitSetup_x64.msi", "SERVER_2022.iso"] {
        fs::write(directory.join(file), file).unwrap();
    }
    fs::write(directory.join("host.xml"), HOST).unwrap();
}

/// Puts stand-ins before the real programs: virt-install starts nothing, and virsh uses a host without machines.
fn stand_ins(directory: &Path) -> PathBuf {
    let folder = directory.join("bin");
    fs::create_dir(&folder).unwrap();
    let (place, real) = (directory.display(), |program: &str| found(program).unwrap().display().to_string());
    for (name, text) in [
        (
            "virt-install",
            format!("exec {} --connect test://{place}/host.xml --dry-run --print-xml \"$@\" > {place}/domain.xml\n", real("virt-install")),
        ),
        (
            "virsh",
            format!(
                "echo \"+ $*\" >> {place}/virsh.log\n{} -c test:///default \"$@\" >> {place}/virsh.log 2>&1\nif [ \"$1\" = domstate ]; then echo 'shut off'; fi\n",
                real("virsh")
            ),
        ),
        ("sleep", "exit 0\n".to_owned()),
    ] {
        fs::write(folder.join(name), format!("#!/bin/sh\n{text}")).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_capw"), folder.join("capw")).unwrap();
    folder
}

#[test]
fn the_commands_of_the_page_are_taken_by_the_real_programs() {
    let test = "the_commands_of_the_page_are_taken_by_the_real_programs";
    let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| found(program).is_none()).collect();
    if !missing.is_empty() {
        return wine::skip(test, &missing.join(", "));
    }
    let scratch = tempfile::Builder::new().prefix("capw-image.").tempdir().unwrap();
    let directory = scratch.path();
    prepare(directory);
    let path = std::env::join_paths([stand_ins(directory)].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap()))).unwrap();
    let commands = commands();
    assert!(["capw ", "xorriso ", "virt-install ", "virsh "].iter().all(|program| commands.contains(program)), "{commands}");
    let done = Command::new("bash").args(["-euc", &commands]).env("PATH", path).current_dir(directory).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    step("every command ended well");

    judge_cd(directory);
    let domain = fs::read_to_string(directory.join("domain.xml")).unwrap();
    judge_domain(&domain);
    step("virt-install starts the medium with the answers beside it");

    let asked = fs::read_to_string(directory.join("virsh.log")).unwrap();
    let wrong: Vec<&str> =
        asked.lines().filter(|line| NOT_UNDERSTOOD.iter().any(|words| line.starts_with("error:") && line.contains(words))).collect();
    assert!(asked.contains("+ vol-upload") && wrong.is_empty(), "{wrong:?} in\n{asked}");
}

/// Checks the CD as Windows sees it, with Joliet names.
fn judge_cd(directory: &Path) {
    let isoinfo = found("isoinfo").unwrap();
    let files = run(&isoinfo, &["-J", "-f", "-i", "install.iso"], directory);
    let has = |path: &str| files.lines().any(|line| line == path);
    assert!(run(&isoinfo, &["-d", "-i", "install.iso"], directory).contains("Volume id: install\n"));
    let answer = fs::read_to_string(directory.join("files/Autounattend.xml")).unwrap();
    let document = Document::parse(&answer).unwrap();
    let drivers: Vec<&str> = document.descendants().filter(|node| node.tag_name().name() == "Path").filter_map(|node| node.text()).collect();
    let drivers: Vec<String> = drivers.iter().filter_map(|path| Some(path.strip_prefix("D:")?.replace('\\', "/"))).collect();
    assert_eq!(drivers.len(), 2, "{drivers:?}");
    let beside = ["/Autounattend.xml", "/install.ps1", "/cloudbase-init.conf", "/cloudbase-init-unattend.conf", "/CloudbaseInitSetup_x64.msi"];
    let of_virtio: Vec<String> = VIRTIO_WIN.iter().map(|name| format!("/{name}")).collect();
    for path in beside.into_iter().map(str::to_owned).chain(drivers).chain(of_virtio) {
        assert!(has(&path), "{path} is not on the CD:\n{files}");
    }
    // When capw runs again, it finds all its files.
    let said = run(Path::new(env!("CARGO_BIN_EXE_capw")), &["image", "autounattend", "--release", "2022", "-o", "files"], directory);
    assert!(said.contains("is there") && !said.contains("belongs on the CD too"), "{said}");
    step("the CD has everything at its place");
}

fn judge_domain(xml: &str) {
    let document = Document::parse(xml).unwrap();
    let all = |name: &'static str| document.descendants().filter(move |node| node.has_tag_name(name));
    let attribute = |node: Node<'_, '_>, name: &str| node.attribute(name).unwrap_or_default().to_owned();
    let child = |node: Node<'_, '_>, name: &str, value: &str| {
        node.children().find(|child| child.has_tag_name(name)).and_then(|child| child.attribute(value)).unwrap_or_default().to_owned()
    };
    let disks: Vec<(String, String, String)> = all("disk")
        .map(|disk| (attribute(disk, "device"), child(disk, "source", "file").rsplit('/').next().unwrap().to_owned(), child(disk, "target", "bus")))
        .collect();
    assert_eq!(disks[0], ("disk".to_owned(), "ws2022-2026-08.qcow2".to_owned(), "virtio".to_owned()));
    let cds: Vec<&str> = disks[1..].iter().filter(|(device, ..)| device == "cdrom").map(|(_, file, _)| file.as_str()).collect();
    assert_eq!(cds, ["SERVER_2022.iso", "install.iso"], "the medium that is started comes first");
    assert_eq!(all("boot").map(|node| attribute(node, "dev")).collect::<Vec<_>>(), ["cdrom", "hd"]);
    let features: Vec<(String, String)> = all("feature").map(|node| (attribute(node, "name"), attribute(node, "enabled"))).collect();
    for name in ["secure-boot", "enrolled-keys"] {
        assert!(features.contains(&(name.to_owned(), "yes".to_owned())), "{features:?}");
    }
    assert_eq!(
        (all("tpm").count(), all("on_reboot").filter(|node| node.text() == Some("destroy")).count()),
        (1, 0),
        "Windows starts again by itself"
    );
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE)).unwrap();
    let log = all("serial").map(|serial| child(serial, "source", "path")).next().unwrap();
    assert!(page.contains(&format!("`{log}`")), "the page says where the log is: {log}");
}
