//! Story *polkit*: libvirt's access control lets CAPW's user do everything except one action. CAPW reports a refusal with the action that a rule must
//! grant, before it creates a VM if a check can detect it, and leaves nothing behind.

use std::fs;
use std::path::PathBuf;

use capw_libvirtd::Daemon;
use capw_libvirtd::polkit::USER;

use crate::world::{hardware, step};

/// The actions that the checks before the creation of a VM need.
const TO_LOOK: [&str; 10] = [
    "connect.getattr",
    "connect.read",
    "connect.search-domains",
    "connect.search-networks",
    "connect.write",
    "storage-pool.getattr",
    "storage-pool.read",
    "storage-pool.search-storage-vols",
    "storage-vol.getattr",
    "storage-vol.read",
];
/// The actions that creating a VM needs.
const TO_MAKE: [&str; 5] = ["storage-vol.create", "storage-vol.data-write", "domain.write", "domain.save", "domain.start"];
/// The actions that removing a VM needs.
const TO_REMOVE: [&str; 4] = ["domain.read", "domain.stop", "domain.delete", "storage-vol.delete"];
/// An action that CAPW does not need.
const NOT_NEEDED: &str = "domain.migrate";

#[test]
fn a_look_names_what_polkit_refuses() {
    let Some(daemon) = daemon() else { return };
    let host = Host::new(&daemon);
    let said = host.capw(&["check"]);
    assert!(said.is_good, "{}", said.text);
    for action in TO_LOOK {
        daemon.refuse(action);
        host.capw(&["check"]).names(action);
    }
    // CAPW skips a check that creating a VM does not need, and reports that.
    daemon.refuse("storage-vol.data-read");
    let said = host.capw(&["check"]);
    assert!(said.is_good && said.text.contains("not looked at"), "{}", said.text);
    assert!(said.text.contains("org.libvirt.api.storage-vol.data-read"), "{}", said.text);
    // CAPW also finds an image by its name with the extension.
    let images = daemon.pools().join(hardware::POOL);
    fs::rename(images.join(hardware::IMAGE), images.join(format!("{}.qcow2", hardware::IMAGE))).unwrap();
    daemon.virsh(["pool-refresh", hardware::POOL]);
    daemon.refuse("storage-vol.getattr");
    host.capw(&["check"]).names("storage-vol.getattr");
}

#[test]
fn what_polkit_refuses_is_named_and_nothing_is_lost() {
    let Some(daemon) = daemon() else { return };
    let host = Host::new(&daemon);
    for action in TO_MAKE {
        daemon.refuse(action);
        host.capw(&PROVE).names(action);
        assert!(host.is_empty(), "something is left without {action}");
        step(action);
    }
    for action in TO_REMOVE {
        daemon.refuse(action);
        let said = host.capw(&PROVE);
        said.names(action);
        let remove = ["prove", "--remove", said.run()];
        if action == "domain.stop" {
            // A volume that is missing from a list does not count as deleted.
            daemon.refuse("storage-vol.getattr");
            host.capw(&[&remove[..], &AT_ONCE].concat()).names("storage-vol.getattr");
            assert_eq!(hardware::volumes(&daemon).len(), 3);
        }
        daemon.refuse(NOT_NEEDED);
        let removed = host.capw(&remove);
        assert!(removed.is_good && host.is_empty(), "something is left that was made without {action}:\n{}", removed.text);
        step(action);
    }
}

/// A VM whose creation was abandoned has volumes and no domain. Only its volumes show that it exists.
#[test]
fn a_half_made_vm_that_polkit_hides_is_not_taken_for_gone() {
    let Some(daemon) = daemon() else { return };
    let host = Host::new(&daemon);
    daemon.refuse_all(&["domain.write", "storage-vol.delete"]);
    let said = host.capw(&PROVE);
    said.names("storage-vol.delete");
    let volumes = hardware::volumes(&daemon);
    assert!(daemon.domains().is_empty() && !volumes.is_empty(), "{volumes:?}\n{}", said.text);
    daemon.refuse("storage-vol.getattr");
    let remove = ["prove", "--remove", said.run()];
    host.capw(&[&remove[..], &AT_ONCE].concat()).names("storage-vol.getattr");
    assert_eq!(hardware::volumes(&daemon), volumes);
    daemon.refuse(NOT_NEEDED);
    let removed = host.capw(&remove);
    assert!(removed.is_good && host.is_empty(), "{}", removed.text);
}

/// Starts a daemon with the polkit rule from the libvirt page.
fn daemon() -> Option<Daemon> {
    const PAGE: &str = include_str!("../../docs/hypervisors/libvirt.md");
    let daemon = Daemon::start_system_with_polkit()?;
    daemon.pool(hardware::POOL, hardware::IMAGE);
    let rule = PAGE.split("```js\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has a rule");
    daemon.allow(&rule.replace("\"capw\"", &format!("{USER:?}")));
    Some(daemon)
}

/// CAPW retries a refused action for this time, in which no rule grants it. Commands that must succeed get the default time.
const AT_ONCE: [&str; 2] = ["--timeout", "5s"];
const PROVE: [&str; 5] = ["prove", "--image", hardware::IMAGE, AT_ONCE[0], AT_ONCE[1]];

/// The result of `capw hypervisor`.
struct Said {
    is_good: bool,
    text: String,
}

impl Said {
    /// Checks that the command failed and names the action that a rule must grant.
    fn names(&self, action: &str) {
        assert!(!self.is_good && self.text.contains(&format!("org.libvirt.api.{action}")), "without {action}:\n{}", self.text);
    }

    /// Returns the name of a `prove` run.
    fn run(&self) -> &str {
        self.text.lines().find_map(|line| line.strip_prefix("run ")?.split(':').next()).unwrap_or_else(|| panic!("no run in\n{}", self.text))
    }
}

/// A directory where CAPW's user finds the program and its file.
struct Host<'a> {
    daemon: &'a Daemon,
    program: PathBuf,
    file: PathBuf,
}

impl<'a> Host<'a> {
    fn new(daemon: &'a Daemon) -> Self {
        let (program, file) = (daemon.path("capw"), daemon.path("lab.json"));
        fs::copy(env!("CARGO_BIN_EXE_capw"), &program).unwrap();
        fs::write(&file, hardware::manifest(daemon)).unwrap();
        Self { daemon, program, file }
    }

    fn capw(&self, arguments: &[&str]) -> Said {
        let output = self.daemon.as_user(&self.program).arg("hypervisor").args(arguments).arg("-f").arg(&self.file).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Said { is_good: output.status.success(), text }
    }

    fn is_empty(&self) -> bool {
        self.daemon.domains().is_empty() && hardware::volumes(self.daemon).is_empty()
    }
}
