//! The faults of a vCenter, and the errors that they become.

use roxmltree::Node;

use super::soap::{attribute, child, text_of};
use crate::hypervisor::DriverError;

/// A fault of a request or of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name of the fault's type, e.g. `InvalidLogin`.
    pub kind: String,
    /// The vCenter's message.
    pub text: String,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    Fault(Fault),
    Driver(DriverError),
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
            Error::Fault(fault) => fault.into(),
        }
    }
}

impl Error {
    pub fn is(&self, kinds: &[&str]) -> bool {
        matches!(self, Self::Fault(fault) if fault.is(kinds))
    }
}

/// The session has ended or never existed.
pub const NOT_AUTHENTICATED: &str = "NotAuthenticated";
/// The object of a reference does not exist any more.
pub const NOT_FOUND: &str = "ManagedObjectNotFound";
/// The VM is in the requested power state already, or cannot get into it.
pub const POWER_STATE: &str = "InvalidPowerState";
/// A file of a datastore does not exist.
pub const FILE_NOT_FOUND: &str = "FileNotFound";
/// The name is taken.
pub const DUPLICATE_NAME: &str = "DuplicateName";

impl Fault {
    pub fn is(&self, kinds: &[&str]) -> bool {
        kinds.contains(&self.kind.as_str())
    }

    /// Reads the fault of a SOAP answer.
    pub fn of_answer(fault: Node) -> Self {
        let text = child(fault, "faultstring").map(text_of).unwrap_or_default();
        let detail = child(fault, "detail").and_then(|detail| detail.first_element_child());
        let kind = detail.map(|detail| {
            let name = attribute(detail, "type").unwrap_or_else(|| detail.tag_name().name());
            name.rsplit(':').next().unwrap_or(name).trim_end_matches("Fault").to_owned()
        });
        Self::new(kind.unwrap_or_default(), text, detail)
    }

    /// Reads the fault of a task or of a property (`LocalizedMethodFault`).
    pub fn of_localized(error: Node) -> Self {
        let fault = child(error, "fault");
        let kind = fault.and_then(|fault| attribute(fault, "type")).unwrap_or_default();
        let text = child(error, "localizedMessage").map(text_of).unwrap_or_default();
        Self::new(kind.rsplit(':').next().unwrap_or(kind).to_owned(), text, fault)
    }

    fn new(kind: String, text: &str, detail: Option<Node>) -> Self {
        // Details that the messages of some faults leave out.
        let more = ["privilegeId", "invalidProperty", "reason", "datastore"];
        let more: Vec<String> = more
            .iter()
            .filter_map(|name| Some((name, detail.and_then(|detail| child(detail, name)).map(text_of).filter(|text| !text.is_empty())?)))
            .filter(|(_, value)| !text.contains(value))
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        let text = if text.is_empty() { kind.clone() } else { text.trim().to_owned() };
        let text = if more.is_empty() { text } else { format!("{text} ({})", more.join(", ")) };
        Self { kind, text }
    }
}

/// The error for a login that the vCenter refuses.
pub fn unusable_login(why: &str) -> DriverError {
    DriverError::Auth(format!("{why}. Check username and password in the Secret of spec.credentialsRef"))
}

impl From<Fault> for DriverError {
    fn from(fault: Fault) -> Self {
        let Fault { kind, text } = fault;
        let said = format!("the vCenter says: {text}");
        match kind.as_str() {
            "InvalidLogin" | "InvalidLocale" | "PasswordExpired" => unusable_login(&said),
            "NoPermission" => Self::Denied(format!("{said}. Grant it to the user; the role is in docs/hypervisors/vsphere.md")),
            "NoDiskSpace"
            | "InsufficientStorageSpace"
            | "NotEnoughLicenses"
            | "InsufficientMemoryResourcesFault"
            | "InsufficientMemoryResources"
            | "InsufficientCpuResources"
            | "InsufficientCpuResourcesFault"
            | "InsufficientResources"
            | "InsufficientHostCapacity"
            | "InsufficientHostCapacityFault"
            | "InsufficientFailoverResources"
            | "InsufficientFailoverResourcesFault"
            | "NoCompatibleHost"
            | "MemorySizeNotRecommended"
            | "MemorySizeNotSupported" => {
                Self::Capacity(format!("{said}. Remove machines, add room to the datastore or cluster, or use another WindowsHypervisor"))
            }
            "HostNotConnected" | "HostNotReachable" | "HostCommunication" | "InvalidHostState" | "HostConnectFault" | "NoActiveHostInCluster" => {
                Self::Invalid(format!("{said}. Its host does not answer or is in maintenance; CAPW goes on when it is back"))
            }
            FILE_NOT_FOUND | "FileLocked" | "CannotAccessFile" | "InvalidDatastore" | "InaccessibleDatastore" => {
                Self::Invalid(format!("{said}. Check the datastore, and the image's snapshot and disks"))
            }
            "TaskInProgress" | "ConcurrentAccess" | "Timedout" | "RequestCanceled" | "ResourceInUse" | "InvalidState" | POWER_STATE | NOT_FOUND
            | NOT_AUTHENTICATED | DUPLICATE_NAME => Self::Transient(said),
            _ => Self::Invalid(format!("{said} ({kind})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;

    #[test]
    fn faults_are_read_and_classed() {
        let answer = r#"<f:Fault xmlns:f="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
            <faultcode>ServerFaultCode</faultcode><faultstring>Permission to perform this operation was denied.</faultstring>
            <detail><NoPermissionFault xmlns="urn:vim25" xsi:type="NoPermission"><object type="Folder">group-v3</object><privilegeId>VirtualMachine.Inventory.Delete</privilegeId></NoPermissionFault></detail></f:Fault>"#;
        let fault = Fault::of_answer(Document::parse(answer).unwrap().root_element());
        assert_eq!(fault.kind, "NoPermission");
        assert!(matches!(DriverError::from(fault), DriverError::Denied(text) if text.contains("VirtualMachine.Inventory.Delete")));
        let task = r#"<val xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><fault xsi:type="NoDiskSpace"><datastore>ds1</datastore></fault><localizedMessage>Insufficient disk space on datastore</localizedMessage></val>"#;
        let fault = Fault::of_localized(Document::parse(task).unwrap().root_element());
        assert!(
            matches!(DriverError::from(fault), DriverError::Capacity(text) if text.contains("datastore ds1") && text.contains("Remove machines"))
        );
        let of = |kind: &str| DriverError::from(Fault { kind: kind.into(), text: "x".into() }).label();
        let labels = ["InvalidLogin", "TaskInProgress", "InvalidHostState", "FileNotFound", "SomethingNew"].map(of);
        assert_eq!(labels, ["auth", "transient", "invalid", "invalid", "invalid"]);
    }
}
