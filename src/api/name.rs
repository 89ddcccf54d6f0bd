//! Names that are valid by construction: parsed once, with the limit and an example in the error.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sha2::{Digest, Sha256};
use thiserror::Error;
use uuid::Uuid;

use super::machine::HostNamePolicy;

/// Namespace of the UUIDs that are derived from object UIDs.
const MACHINE_NAMESPACE: Uuid = Uuid::from_u128(0x8e5c_1d0e_6a0b_5c7f_9a43_77b1_0c5e_d2a4);
/// Longest host name that Windows accepts (NetBIOS).
pub const HOST_NAME_LENGTH: usize = 15;

/// Why a text is not a valid name. The message has value, rule and remedy; the caller adds the field.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NameError {
    #[error(
        "{value:?} has {length} characters, Windows host names have at most 15: shorten it, e.g. by `machineNaming.template: win-{{{{ .random }}}}` in the MachineDeployment, or set hostName: Auto"
    )]
    HostNameTooLong { value: String, length: usize },
    #[error("{value:?} is not a host name: use a-z, 0-9 and `-`, start and end with a letter or digit, not digits only")]
    HostNameCharacters { value: String },
    #[error("{value:?} is not a provider ID of ours: expected windows://<hypervisor>/<uuid>")]
    ProviderId { value: String },
    #[error("{value:?} is not an amount of memory: expected a whole number with Mi, Gi or Ti, e.g. 8Gi")]
    Memory { value: String },
}

/// Namespace and name of an object whose kind is known from the context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Identity of a VM, known before it is created. Shown as a lower-case UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmUuid(pub Uuid);

impl VmUuid {
    /// Derives the identity from the UID of the WindowsMachine, so that a retry after a crash finds the VM.
    pub fn of(uid: &str) -> Self {
        Self(Uuid::new_v5(&MACHINE_NAMESPACE, uid.as_bytes()))
    }
}

impl fmt::Display for VmUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// `windows://<hypervisor>/<uuid>`, which links Machine, VM and Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderId {
    pub hypervisor: String,
    pub vm: VmUuid,
}

impl ProviderId {
    pub fn parse(value: &str) -> Result<Self, NameError> {
        let wrong = || NameError::ProviderId { value: value.into() };
        let (hypervisor, uuid) = value.strip_prefix("windows://").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        let vm = VmUuid(Uuid::try_parse(uuid).map_err(|_| wrong())?);
        if !is_object_name(hypervisor) || vm.to_string() != uuid {
            return Err(wrong());
        }
        Ok(Self { hypervisor: hypervisor.into(), vm })
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "windows://{}/{}", self.hypervisor, self.vm)
    }
}

/// Host name of a Windows machine and name of its Node: 1 to 15 characters, lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    pub fn parse(value: &str) -> Result<Self, NameError> {
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let valid = value.chars().all(|c| edge(c) || c == '-')
            && value.starts_with(edge)
            && value.ends_with(edge)
            && !value.chars().all(|c| c.is_ascii_digit());
        if !valid {
            return Err(NameError::HostNameCharacters { value: value.into() });
        }
        if value.len() > HOST_NAME_LENGTH {
            return Err(NameError::HostNameTooLong { value: value.into(), length: value.len() });
        }
        Ok(Self(value.into()))
    }

    /// Chooses the host name of a machine: the name of its object if Windows accepts it; otherwise, with [`HostNamePolicy::Auto`], the first
    /// letters of that name and eight characters of a hash of the machine's identity.
    pub fn choose(object: &str, vm: VmUuid, policy: HostNamePolicy) -> Result<Self, NameError> {
        match (Self::parse(object), policy) {
            (Ok(name), _) => Ok(name),
            (Err(error), HostNamePolicy::ObjectName) => Err(error),
            (Err(_), HostNamePolicy::Auto) => {
                let prefix: String = object.chars().filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-').take(6).collect();
                let prefix = prefix.trim_matches('-');
                let prefix = if prefix.starts_with(|c: char| c.is_ascii_lowercase()) { prefix } else { "win" };
                Ok(Self(format!("{prefix}-{}", base36(vm.to_string().as_bytes(), 8))))
            }
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether an object can have this name: a DNS subdomain.
pub fn is_object_name(name: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| label.starts_with(edge) && label.ends_with(edge) && label.chars().all(|c| edge(c) || c == '-');
    name.len() <= 253 && name.split('.').all(label)
}

/// Returns `length` characters of 0-9a-z that depend on `bytes` only, in the form of the public half of a bootstrap token.
pub fn base36(bytes: &[u8], length: usize) -> String {
    Sha256::digest(bytes).iter().take(length).filter_map(|b| char::from_digit(u32::from(*b) % 36, 36)).collect()
}

/// Returns the mebibytes of an amount like `8Gi`.
pub fn mebibytes(value: &str) -> Result<u64, NameError> {
    let wrong = || NameError::Memory { value: value.into() };
    let unit = value.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let factor = match &value[unit..] {
        "Mi" => 1,
        "Gi" => 1 << 10,
        "Ti" => 1 << 20,
        _ => return Err(wrong()),
    };
    value[..unit].parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn host_names() {
        for good in ["a", "win-7k2fq", "abcdefghijklmno", "1a"] {
            assert_eq!(HostName::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a.b", "123", "abcdefghijklmnop", "ä"] {
            assert!(HostName::parse(bad).is_err(), "{bad}");
        }
        assert!(HostName::choose("workers-md-0-abcde-fghij", VmUuid::of("u"), HostNamePolicy::ObjectName).unwrap_err().to_string().contains("15"));
    }

    #[test]
    fn provider_ids() {
        let id = ProviderId { hypervisor: "lab".into(), vm: VmUuid::of("x") };
        assert_eq!(ProviderId::parse(&id.to_string()).unwrap(), id);
        let uuid = id.vm.to_string();
        for impossible in ["a..b", "-a", "a-", "a.-b", ".", &"a".repeat(254)] {
            assert!(ProviderId::parse(&format!("windows://{impossible}/{uuid}")).is_err(), "{impossible}");
        }
        assert!(ProviderId::parse(&format!("windows://a-1.{}/{uuid}", "b".repeat(249))).is_ok());
        for bad in ["", "windows://", "windows://a", "windows:///x", "vsphere://a/b", "windows://lab/B0A3C9C6-0000-5000-8000-000000000000"] {
            assert!(ProviderId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory() {
        assert_eq!(mebibytes("8Gi"), Ok(8192));
        assert_eq!(mebibytes("512Mi"), Ok(512));
        for bad in ["", "8", "8G", "Gi", "-1Gi", "99999999999999999999Gi", "18446744073709551615Ti"] {
            assert!(mebibytes(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_machine_gets_a_valid_host_name(object in "[a-z0-9.-]{1,70}", uid in ".{1,40}") {
            let name = HostName::choose(&object, VmUuid::of(&uid), HostNamePolicy::Auto).unwrap();
            prop_assert!(HostName::parse(name.as_str()).is_ok(), "{}", name);
        }

        #[test]
        fn provider_id_parsing_never_panics(text in ".{0,80}") {
            let _ = ProviderId::parse(&text);
        }
    }
}
