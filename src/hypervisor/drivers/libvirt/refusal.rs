//! The refusals of the daemon, their meaning, and the remedies.

use super::xdr::Malformed;
use crate::hypervisor::DriverError;
use crate::vm::Thing;

/// The codes of libvirt's errors (`virErrorNumber`).
pub mod code {
    pub const INTERNAL_ERROR: u32 = 1;
    pub const NO_SUPPORT: u32 = 3;
    pub const INVALID_ARG: u32 = 8;
    pub const OPERATION_FAILED: u32 = 9;
    pub const XML_ERROR: u32 = 27;
    pub const OPERATION_DENIED: u32 = 29;
    pub const NO_DOMAIN: u32 = 42;
    pub const AUTH_FAILED: u32 = 45;
    pub const NO_STORAGE_POOL: u32 = 49;
    pub const NO_STORAGE_VOL: u32 = 50;
    pub const OPERATION_INVALID: u32 = 55;
    pub const CONFIG_UNSUPPORTED: u32 = 67;
    pub const AUTH_CANCELLED: u32 = 79;
    pub const AUTH_UNAVAILABLE: u32 = 80;
    pub const ACCESS_DENIED: u32 = 88;
    pub const STORAGE_VOL_EXIST: u32 = 90;
}

/// The daemon's message for a volume whose content is incomplete.
pub const BEING_MADE: &str = "still being allocated";

/// Why a request failed.
#[derive(Debug)]
pub enum Error {
    /// The daemon answered with an error.
    Refused {
        code: u32,
        text: String,
    },
    Driver(DriverError),
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl From<Malformed> for Error {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Driver(DriverError::Transient(format!("libvirt's answer cannot be read: {what}")))
    }
}

impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        match error {
            Error::Driver(error) => error,
            Error::Refused { code, text } => refused(code, &text),
        }
    }
}

/// The class of a refusal.
#[derive(Clone, Copy)]
enum Class {
    Capacity,
    Invalid,
    Missing(Thing),
    /// A trouble of the host that is independent of this machine, and may end on its own.
    Host,
}

/// The refusals that are recognized by their text, since one code stands for many: the required parts of the text, the class, the remedy.
/// The first row that matches counts.
const KNOWN: [(&[&str], Class, &str); 25] = [
    (
        &["Cannot allocate memory"],
        Class::Capacity,
        "Remove machines, or add memory to the host; spec.limits.memory of the WindowsHypervisor refuses machines before the host does",
    ),
    (&["No space left on device"], Class::Capacity, "Remove machines, or add disk space to the pool"),
    (&["Disk quota exceeded"], Class::Capacity, "Remove machines, or raise the quota of the pool's file system"),
    (
        &["storage pool", "is not active"],
        Class::Missing(Thing::Placement),
        "Start the pool: virsh pool-start, and virsh pool-autostart for the future",
    ),
    (
        &["Storage pool not found"],
        Class::Missing(Thing::Placement),
        "Define and start the pool, or correct spec.libvirt.pool of the WindowsHypervisor",
    ),
    (&["network", "is not active"], Class::Missing(Thing::Network), "Start the network: virsh net-start, and virsh net-autostart for the future"),
    (&["Network not found"], Class::Missing(Thing::Network), "Correct spec.networks of the machine or spec.libvirt.network of the WindowsHypervisor"),
    (&["interface MTU", "No such device"], Class::Missing(Thing::Network), "The bridge is not there: make it on the host, or name another one"),
    (&["bridge helper"], Class::Missing(Thing::Network), "The bridge is not there, or /etc/qemu/bridge.conf does not allow it to this user"),
    (&["type=kvm"], Class::Invalid, NO_KVM),
    (&["domain type kvm"], Class::Invalid, NO_KVM),
    (&["virt type 'kvm'"], Class::Invalid, NO_KVM),
    (&["accel 'kvm' is not supported"], Class::Invalid, NO_KVM),
    (&["KVM kernel module"], Class::Invalid, NO_KVM),
    (&["initialize kvm"], Class::Invalid, NO_KVM),
    (&["unable to find any emulator"], Class::Invalid, "Install QEMU on the host (package qemu-system-x86 or qemu-kvm)"),
    (
        &["Unable to find", "firmware"],
        Class::Invalid,
        "Install UEFI for guests on the host (package ovmf or edk2-ovmf; Secure Boot needs a build with it), or change spec.firmware of the machine",
    ),
    (
        &["swtpm"],
        Class::Invalid,
        "Check that swtpm and swtpm-tools are installed on the host and that libvirt may write where it keeps the state of TPMs, or set spec.firmware.tpm of the machine to false",
    ),
    (
        &["Failed to get \"write\" lock"],
        Class::Host,
        "Another process of the host uses the disk. libvirt's own work with it ends by itself; end any other. VMs of CAPW never share a disk",
    ),
    (
        &["Failed to terminate process"],
        Class::Invalid,
        "QEMU does not end, as a rule because its storage hangs: fix the storage, or restart the host",
    ),
    (
        &["cannot acquire state change lock"],
        Class::Invalid,
        "An earlier request for this VM has not ended, as a rule because its storage hangs: fix the storage, then restart the daemon",
    ),
    (
        &["virtlogd-sock"],
        Class::Host,
        "libvirt's daemon for the logs of guests does not answer: systemctl enable --now virtlogd.socket on the host, and check that libvirtd may open the socket",
    ),
    (
        &["Permission denied"],
        Class::Invalid,
        "QEMU's user must be able to open the files of the pool: check their owner, that each directory above may be entered, and AppArmor or SELinux",
    ),
    (&["Storage volume not found", "with matching path"], Class::Missing(Thing::Image), FILE_GONE),
    (&["No such file or directory"], Class::Missing(Thing::Image), FILE_GONE),
];

const FILE_GONE: &str =
    "A file is gone that a disk is made of: put it back, then virsh pool-refresh; an image must stay as long as linked disks are made over it";

const NO_KVM: &str = "The host runs no guests by KVM: switch virtualization on in its firmware, load kvm_intel or kvm_amd and let libvirt open /dev/kvm; or set spec.libvirt.acceleration of the WindowsHypervisor to TCG, which is many times slower";
const NO_LOGIN: &str =
    "Check the credentials of the WindowsHypervisor and what the daemon allows (auth_unix_rw, auth_tls, tls_allowed_dn_list in its configuration)";
const NO_RIGHTS: &str = "CAPW must be allowed everything on this daemon: use the socket for reading and writing, not the one that ends in -ro; where access_drivers of libvirtd.conf names polkit, a rule below /etc/polkit-1/rules.d must grant its user the actions org.libvirt.api.*";

/// Removes the times that QEMU or the daemon put into a message: otherwise the condition would change at each try.
fn without_times(words: &str) -> String {
    words.split_inclusive(char::is_whitespace).filter(|word| !is_time(word.trim_end())).collect()
}

/// Whether a text is a time as QEMU writes it: `2026-11-25T02:07:00.123456Z`.
fn is_time(word: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let Some((whole, rest)) = word.split_at_checked(FORM.len()) else { return false };
    let is_of_form = whole.bytes().zip(FORM).all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form });
    is_of_form && rest.strip_suffix('Z').is_some_and(|rest| rest.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit()))
}

fn refused(code: u32, words: &str) -> DriverError {
    let words = without_times(words);
    let words = words.trim_end();
    let with = |remedy: &str| format!("libvirt says: {}. {remedy}", words.trim_end_matches('.'));
    match code {
        code::AUTH_FAILED | code::AUTH_CANCELLED | code::AUTH_UNAVAILABLE => return DriverError::Auth(with(NO_LOGIN)),
        code::OPERATION_DENIED | code::ACCESS_DENIED => return DriverError::Denied(with(NO_RIGHTS)),
        _ => {}
    }
    if let Some((_, class, remedy)) = KNOWN.iter().find(|(parts, ..)| parts.iter().all(|part| words.contains(part))) {
        return match *class {
            Class::Capacity => DriverError::Capacity(with(remedy)),
            Class::Invalid => DriverError::Invalid(with(remedy)),
            Class::Host => DriverError::Transient(with(remedy)),
            Class::Missing(thing) => DriverError::Missing { thing, text: with(remedy) },
        };
    }
    let text = format!("libvirt says: {words}");
    match code {
        code::XML_ERROR | code::CONFIG_UNSUPPORTED | code::INVALID_ARG | code::NO_SUPPORT => DriverError::Invalid(text),
        _ => DriverError::Transient(text),
    }
}

/// Returns the answer, or `None` if the daemon refused with that code.
pub fn unless<T>(result: Result<T, Error>, expected: u32) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::Refused { code, .. }) if code == expected => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each case uses a real message of libvirt or QEMU.
    #[test]
    fn what_libvirt_says_has_a_class_and_a_remedy() {
        for (code, words, class, remedy) in [
            (
                1,
                "internal error: process exited while connecting to monitor: qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory",
                "capacity",
                "spec.limits.memory",
            ),
            (38, "cannot write data to file '/pool/w.iso': No space left on device", "capacity", "disk space"),
            (55, "Requested operation is not valid: storage pool 'default' is not active", "missing", "virsh pool-start"),
            (49, "Storage pool not found: no storage pool with matching uuid '3f2504e0'", "missing", "spec.libvirt.pool"),
            (55, "Requested operation is not valid: network 'default' is not active", "missing", "virsh net-start"),
            (43, "Network not found: no network with matching name 'vlan9'", "missing", "spec.networks"),
            (38, "Cannot get interface MTU on 'br9': No such device", "missing", "bridge"),
            (67, "unsupported configuration: Emulator '/usr/bin/qemu-system-x86_64' does not support virt type 'kvm'", "invalid", "acceleration"),
            (
                1,
                "internal error: process exited while connecting to monitor: Could not access KVM kernel module: No such file or directory",
                "invalid",
                "/dev/kvm",
            ),
            (8, "invalid argument: the accel 'kvm' is not supported by '/usr/bin/qemu-system-x86_64' on this host", "invalid", "acceleration"),
            (8, "invalid argument: unable to find any emulator to serve 'x86_64' architecture", "invalid", "qemu-system-x86"),
            (9, "operation failed: Unable to find any firmware to satisfy 'efi'", "invalid", "ovmf"),
            (9, "operation failed: Unable to find 'efi' firmware that is compatible with the current configuration", "invalid", "ovmf"),
            (1, "internal error: Could not run '/usr/bin/swtpm_setup'. exitstatus: 1", "invalid", "spec.firmware.tpm"),
            (38, "Failed to terminate process 4711 with SIGKILL: Device or resource busy", "invalid", "storage"),
            (
                68,
                "Timed out during operation: cannot acquire state change lock (held by monitor=remoteDispatchDomainDestroyFlags)",
                "invalid",
                "storage",
            ),
            (1, "internal error: qemu unexpectedly closed the monitor: Could not open '/pool/w.qcow2': Permission denied", "invalid", "AppArmor"),
            (
                38,
                "Cannot access backing file '/pool/w.img' of storage file '/pool/win-1.qcow2' (as uid:64055, gid:64055): No such file or directory",
                "missing",
                "put it back",
            ),
            (
                code::NO_STORAGE_VOL,
                "Storage volume not found: no storage vol with matching path '/pool/windows-server-2022.img'",
                "missing",
                "pool-refresh",
            ),
            (38, "Failed to connect socket to '/run/libvirt/virtlogd-sock': No such file or directory", "transient", "virtlogd.socket"),
            (38, "Failed to connect socket to '/run/libvirt/virtlogd-sock': Connection refused", "transient", "virtlogd.socket"),
            (38, "Failed to connect socket to '/run/libvirt/virtlogd-sock': Permission denied", "transient", "may open the socket"),
            (38, "Failed to connect socket to '/run/user/1000/libvirt/virtlogd-sock': Permission denied", "transient", "may open the socket"),
            (code::AUTH_FAILED, "authentication failed: access denied by policy", "auth", "credentials"),
            (code::ACCESS_DENIED, "access denied: 'QEMU' denied access, org.libvirt.api.domain.write", "denied", "/etc/polkit-1/rules.d"),
            (code::OPERATION_DENIED, "operation forbidden: read only access prevents virDomainDefineXMLFlags", "denied", "-ro"),
            (code::XML_ERROR, "XML error: extra content", "invalid", ""),
            (code::OPERATION_FAILED, "operation failed: domain is not running", "transient", ""),
        ] {
            let error = DriverError::from(Error::Refused { code, text: words.into() });
            let text = error.to_string();
            assert!(error.label() == class && text.contains(remedy) && text.contains(words), "{class}: {text}");
        }
    }

    #[test]
    fn the_time_of_an_error_is_no_part_of_it() {
        let exited = "internal error: process exited while connecting to monitor:";
        for (words, wanted) in [
            (
                format!("{exited} 2026-11-25T02:07:00.123456Z qemu-system-x86_64: -accel kvm: failed to open"),
                format!("{exited} qemu-system-x86_64: -accel kvm: failed to open"),
            ),
            (
                format!("{exited} 2026-11-25T02:07:00.123456Z qemu: warning: x\n2026-11-25T02:07:00.2Z qemu: y\n2026-11-25T02:07:01Z"),
                format!("{exited} qemu: warning: x\nqemu: y"),
            ),
            ("no time: 2026-11-25 02:07:00, 2026-11-25T02:07, 2026-11-25T02:07:00, 12345Z ü".into(), String::new()),
            ("file '/pool/2026-11-25T02:07:00Z.qcow2' is gone".into(), String::new()),
            ("2026-11-25T02:07:00é é".into(), String::new()),
        ] {
            let wanted = if wanted.is_empty() { words.clone() } else { wanted };
            let text = DriverError::from(Error::Refused { code: code::INTERNAL_ERROR, text: words }).to_string();
            assert_eq!(text, format!("libvirt says: {wanted}"));
        }
    }

    #[test]
    fn every_known_refusal_can_be_reached() {
        for (number, (parts, ..)) in KNOWN.iter().enumerate() {
            let words = parts.join(" ");
            let first = KNOWN.iter().position(|(parts, ..)| parts.iter().all(|part| words.contains(part)));
            assert_eq!(first, Some(number), "an earlier row takes {words:?}");
        }
    }
}
