//! The reasons for failed requests and tasks. Proxmox VE has no codes for them: the driver recognizes the messages of its programs.

use serde_json::Value;

use crate::hypervisor::DriverError;
use crate::vm::Thing;

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    Driver(DriverError),
    /// The server answered that it did not carry out the request.
    Refused(Refusal),
}

/// The reason that a server, or a task on a node, gives for a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of HTTP; 500 for a task.
    pub status: u16,
    pub text: String,
}

/// The messages for an id that is taken: from clone, and from create.
const TAKEN: [&str; 2] = ["config file already exists", "already exists on node"];
const CHANGED: [&str; 2] = ["detected modified configuration", "checksum mismatch"];
const FULL: [&str; 6] =
    ["no space left on device", "not enough free space", "insufficient free space", "out of space", "quota exceeded", "cannot allocate memory"];
/// The messages for something that another task holds for a while.
const BUSY: [&str; 4] = ["got timeout", "got lock request timeout", "try again", "unable to acquire"];
const NO_QUORUM: [&str; 3] = ["no quorum", "cluster not ready", "permission denied - /etc/pve"];

impl Refusal {
    /// Reads a refusal. Up to version 8 the text is in the status line, later in the body.
    pub fn new(status: u16, reason: Option<&str>, body: Option<&Value>) -> Self {
        let said = body.and_then(|body| body.get("message")?.as_str()).map(str::trim).filter(|text| !text.is_empty());
        let mut text = said.or(reason.map(str::trim).filter(|text| !text.is_empty())).unwrap_or("no reason").to_owned();
        let fields = body.and_then(|body| body.get("errors")?.as_object()).into_iter().flatten();
        for (field, why) in fields {
            text.push_str(&format!(" {field}: {}", why.as_str().unwrap_or_default().trim()));
        }
        Self { status, text }
    }

    pub fn of_task(text: &str) -> Self {
        Self { status: 500, text: text.trim().to_owned() }
    }

    fn says(&self, words: &[&str]) -> bool {
        let text = self.text.to_lowercase();
        words.iter().any(|word| text.contains(word))
    }

    /// Whether the VM has no configuration on that node.
    pub fn is_gone(&self) -> bool {
        self.says(&["configuration file"]) && self.says(&["does not exist"])
    }

    pub fn is_taken(&self) -> bool {
        self.says(&TAKEN)
    }

    /// Whether the configuration has changed since it was read.
    pub fn is_changed(&self) -> bool {
        self.says(&CHANGED)
    }

    pub fn is_denied(&self) -> bool {
        self.status == 403
    }

    /// Whether the requested node does not answer the server.
    pub fn is_down(&self) -> bool {
        self.status == 595
    }

    /// Whether the VM is already in the requested state.
    pub fn is_harmless(&self) -> bool {
        self.says(&["already running", "not running"]) || self.is_gone()
    }
}

impl Error {
    pub fn is(&self, what: impl Fn(&Refusal) -> bool) -> bool {
        matches!(self, Self::Refused(refusal) if what(refusal))
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        match error {
            Error::Driver(error) => error,
            Error::Refused(refusal) => refusal.into(),
        }
    }
}

impl From<Refusal> for DriverError {
    fn from(refusal: Refusal) -> Self {
        let said = format!("Proxmox VE says: {}", refusal.text);
        // Proxmox VE reports a missing pool as a missing permission.
        if refusal.is_denied() && refusal.says(&["(pool '"]) {
            let text = format!("{said}. Correct spec.proxmox.pool of the WindowsHypervisor, or make the pool: pvesh create /pools --poolid NAME");
            return Self::Missing { thing: Thing::Placement, text };
        }
        match refusal.status {
            401 => {
                return Self::Auth(format!(
                    "{said}. Check username and password (the API token and its secret) in the Secret of spec.credentialsRef, and that the token has not expired"
                ));
            }
            403 => return Self::Denied(format!("{said}. Grant it to the API token; the roles are in docs/hypervisors/proxmox.md")),
            595 => return Self::Invalid(format!("{said}. A node of the cluster does not answer; CAPW goes on when it is back")),
            _ => {}
        }
        if refusal.says(&NO_QUORUM) {
            return Self::Invalid(format!("{said}. The cluster has no quorum: look at pvecm status; CAPW goes on when it has"));
        }
        if refusal.says(&FULL) {
            return Self::Capacity(format!("{said}. Remove machines, add room to the storage or the node, or use another WindowsHypervisor"));
        }
        // Another CAPW process, or a person, is removing the VM.
        if refusal.says(&["is locked (destroyed)"]) {
            return Self::Transient(said);
        }
        if refusal.says(&["is locked"]) {
            return Self::Invalid(format!("{said}. CAPW goes on when the lock is gone; one that stays though no task runs goes with qm unlock"));
        }
        if refusal.says(&["protection mode enabled"]) {
            return Self::Invalid(format!("{said}. Switch the protection of the VM off; CAPW goes on then"));
        }
        if refusal.says(&["bridge"]) && refusal.says(&["does not exist", "no such"]) {
            let text = format!(
                "{said}. Correct spec.networks of the machine or spec.proxmox.network of the WindowsHypervisor, or make the bridge on that node"
            );
            return Self::Missing { thing: Thing::Network, text };
        }
        if refusal.says(&["linked clone feature is not supported"]) {
            return Self::Invalid(format!("{said}. Set spec.proxmox.clone of the WindowsHypervisor to Full, or make the image a template"));
        }
        if refusal.says(&BUSY) || refusal.is_changed() || refusal.is_gone() || refusal.is_taken() {
            return Self::Transient(said);
        }
        Self::Invalid(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_are_read_where_each_version_puts_them() {
        let of_8 = Refusal::new(500, Some("VM 100 not running"), Some(&json!({"data": null})));
        assert_eq!((of_8.text.as_str(), of_8.is_harmless()), ("VM 100 not running", true));
        let of_9 = Refusal::new(
            400,
            Some("Parameter verification failed."),
            Some(&json!({"data": null, "message": "Parameter verification failed.\n", "errors": {"memory": "type check failed\n"}})),
        );
        assert_eq!(of_9.text, "Parameter verification failed. memory: type check failed");
        assert_eq!(Refusal::new(500, None, None).text, "no reason");
    }

    #[test]
    fn words_decide_what_happens_next() {
        for (status, text, label) in [
            (401, "authentication failure", "auth"),
            (403, "Permission check failed (/vms/9000, VM.Clone)", "denied"),
            (403, "Permission check failed (pool 'capw' does not exist)", "missing"),
            (595, "No route to host", "invalid"),
            (500, "cluster not ready - no quorum?", "invalid"),
            (500, "clone failed: unable to write to storage 'x': No space left on device", "capacity"),
            (500, "start failed: ... Cannot allocate memory", "capacity"),
            (500, "VM is locked (backup)", "invalid"),
            (500, "VM is locked (destroyed)", "transient"),
            (500, "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout", "transient"),
            (500, "cfs-lock 'storage-ceph' error: got lock request timeout", "transient"),
            (500, "bridge 'vmbr9' does not exist", "missing"),
            (500, "Configuration file 'nodes/pve1/qemu-server/100.conf' does not exist", "transient"),
            (500, "Linked clone feature is not supported for drive 'scsi0'", "invalid"),
            (500, "can't remove VM 100 - protection mode enabled", "invalid"),
            (500, "something new", "invalid"),
        ] {
            assert_eq!(DriverError::from(Refusal { status, text: text.into() }).label(), label, "{text}");
        }
        let locked = DriverError::from(Refusal::of_task("VM is locked (backup)\n")).to_string();
        assert!(locked.contains("(backup)") && locked.contains("qm unlock"), "{locked}");
    }
}
