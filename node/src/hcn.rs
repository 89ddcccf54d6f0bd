//! Queries HNS, the networking service of Windows. All `unsafe` code of this program is in this file.
//! <https://learn.microsoft.com/windows-server/networking/technologies/hcn/hcn-declaration-handles>

use std::fmt::{Display, Formatter};
use std::time::Duration;

use serde_json::{Value, json};

use crate::node::Failure;

/// The pause between two checks for changes. HNS serves one caller at a time, and CNI plugins are callers too.
pub const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// A kind of HNS object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Network,
    Endpoint,
    LoadBalancer,
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Network => "network",
            Self::Endpoint => "endpoint",
            Self::LoadBalancer => "load balancer",
        })
    }
}

/// Returns the properties of each object of this kind and name, in version 2 of HNS's API.
pub fn named(kind: Kind, name: &str) -> Result<Vec<Value>, Failure> {
    let failed = |why: &dyn Display| Failure(format!("HNS, asked for each {kind} with the name {name}: {why}"));
    let query = query(Some(name));
    let mut found = Vec::new();
    for id in listed(kind, &query).map_err(|why| failed(&why))? {
        match calls::properties(kind, id, &query) {
            Ok(properties) => found.push(serde_json::from_str(&properties).map_err(|error| failed(&format!("{error}: {properties}")))?),
            // The object was deleted after it was listed.
            Err(refusal) if refusal.is_missing() => {}
            Err(refusal) => return Err(failed(&refusal)),
        }
    }
    Ok(found)
}

/// The GUIDs of all objects of this kind.
pub fn all(kind: Kind) -> Result<Vec<u128>, Failure> {
    listed(kind, &query(None)).map_err(|why| Failure(format!("HNS, asked for each {kind}: {why}")))
}

/// Returns the objects that match a query, or the reason why HNS does not list them.
fn listed(kind: Kind, query: &str) -> Result<Vec<u128>, String> {
    let list = calls::enumerate(kind, query).map_err(|refusal| refusal.to_string())?;
    ids(&list).ok_or_else(|| format!("the answer is no list of GUIDs: {list}"))
}

/// The GUID of an object.
pub fn id(object: &Value) -> &str {
    object.get("ID").and_then(Value::as_str).unwrap_or_default()
}

/// The kind of a network: `Overlay`, `L2Bridge`.
pub fn network_type(network: &Value) -> &str {
    network.get("Type").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a network is a bridge. kube-proxy compares in the same way.
pub fn is_bridge(network: &Value) -> bool {
    network_type(network).eq_ignore_ascii_case("L2Bridge")
}

/// The query for the objects with a name, or for all, in the form that kube-proxy and the CNI plugins use.
/// <https://github.com/microsoft/hnslib/blob/v0.1.2/hcn/hcnnetwork.go> (`GetNetworkByName`, `ListNetworks`)
fn query(name: Option<&str>) -> String {
    let version = json!({"Major": 2, "Minor": 0});
    let query = match name {
        Some(name) => json!({"SchemaVersion": version, "Filter": json!({"Name": name}).to_string()}),
        None => json!({"SchemaVersion": version}),
    };
    query.to_string()
}

/// Parses a list of GUIDs: `["D8B0C8A1-5C6F-4F43-9D6B-2B1C5F0E7A11"]`.
fn ids(list: &str) -> Option<Vec<u128>> {
    let list: Vec<String> = serde_json::from_str(list).ok()?;
    list.iter().map(|id| u128::from_str_radix(&id.replace('-', ""), 16).ok()).collect()
}

/// An error of HNS.
struct Refusal {
    /// An `HRESULT`.
    code: u32,
    /// HNS's error record, which may be empty: `{"Error": "a sentence", ...}`.
    record: String,
}

impl Refusal {
    /// Whether the code is `HCN_E_NETWORK_NOT_FOUND` or `HCN_E_ENDPOINT_NOT_FOUND`.
    /// <https://learn.microsoft.com/virtualization/api/hcn/reference/hcnhresult>
    fn is_missing(&self) -> bool {
        matches!(self.code, 0x803B_0001 | 0x803B_0002)
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let record: Value = serde_json::from_str(&self.record).unwrap_or_default();
        let why = match self.code {
            // `HCN_E_MANAGER_STOPPED`, and `RPC_S_SERVER_UNAVAILABLE` as an HRESULT.
            0x803B_0020 | 0x8007_06BA => "the service is stopped; on the node, `Start-Service hns` starts it",
            _ => record.get("Error").and_then(Value::as_str).unwrap_or("it says no more"),
        };
        write!(f, "{:#010x}: {why}", self.code)
    }
}

#[cfg(windows)]
#[allow(unsafe_code, reason = "HNS is called by functions of C")]
mod calls {
    use std::ffi::c_void;
    use std::ptr::null_mut;
    use std::slice;

    use windows_sys::Win32::System::Com::CoTaskMemFree;
    use windows_sys::Win32::System::HostComputeNetwork::{
        HcnCloseEndpoint, HcnCloseLoadBalancer, HcnCloseNetwork, HcnEnumerateEndpoints, HcnEnumerateLoadBalancers, HcnEnumerateNetworks,
        HcnOpenEndpoint, HcnOpenLoadBalancer, HcnOpenNetwork, HcnQueryEndpointProperties, HcnQueryLoadBalancerProperties, HcnQueryNetworkProperties,
    };
    use windows_sys::core::{GUID, HRESULT, PCWSTR, PWSTR};

    use super::{Kind, Refusal};

    /// The functions for one kind of object.
    struct Functions {
        enumerate: unsafe extern "system" fn(PCWSTR, *mut PWSTR, *mut PWSTR) -> HRESULT,
        open: unsafe extern "system" fn(*const GUID, *mut *mut c_void, *mut PWSTR) -> HRESULT,
        query: unsafe extern "system" fn(*const c_void, PCWSTR, *mut PWSTR, *mut PWSTR) -> HRESULT,
        close: unsafe extern "system" fn(*const c_void) -> HRESULT,
    }

    fn functions(kind: Kind) -> Functions {
        match kind {
            Kind::Network => {
                Functions { enumerate: HcnEnumerateNetworks, open: HcnOpenNetwork, query: HcnQueryNetworkProperties, close: HcnCloseNetwork }
            }
            Kind::Endpoint => {
                Functions { enumerate: HcnEnumerateEndpoints, open: HcnOpenEndpoint, query: HcnQueryEndpointProperties, close: HcnCloseEndpoint }
            }
            Kind::LoadBalancer => Functions {
                enumerate: HcnEnumerateLoadBalancers,
                open: HcnOpenLoadBalancer,
                query: HcnQueryLoadBalancerProperties,
                close: HcnCloseLoadBalancer,
            },
        }
    }

    /// Returns the list of the objects that match the query.
    pub fn enumerate(kind: Kind, query: &str) -> Result<String, Refusal> {
        let (query, mut list, mut record) = (wide(query), Text::none(), Text::none());
        // SAFETY: the query ends with a zero, and both pointers may be written to.
        let result = unsafe { (functions(kind).enumerate)(query.as_ptr(), &raw mut list.0, &raw mut record.0) };
        answer(result, &list, &record)
    }

    /// Returns the properties of an object.
    pub fn properties(kind: Kind, id: u128, query: &str) -> Result<String, Refusal> {
        let (id, query, mut handle, mut record) = (GUID::from_u128(id), wide(query), null_mut(), Text::none());
        let Functions { open, query: ask, close, .. } = functions(kind);
        // SAFETY: the GUID is readable; the pointers for the handle and the text may be written to.
        let result = unsafe { open(&raw const id, &raw mut handle, &raw mut record.0) };
        answer(result, &Text::none(), &record)?;
        let (mut properties, mut record) = (Text::none(), Text::none());
        // SAFETY: the handle is open, the query ends with a zero, and both pointers may be written to.
        let result = unsafe { ask(handle, query.as_ptr(), &raw mut properties.0, &raw mut record.0) };
        // SAFETY: the handle is open, and is not used afterwards.
        unsafe { close(handle) };
        answer(result, &properties, &record)
    }

    fn answer(result: HRESULT, text: &Text, record: &Text) -> Result<String, Refusal> {
        if result >= 0 { Ok(text.read()) } else { Err(Refusal { code: result.cast_unsigned(), record: record.read() }) }
    }

    /// Converts a text to UTF-16 with a zero at the end.
    fn wide(text: &str) -> Vec<u16> {
        text.encode_utf16().chain([0]).collect()
    }

    /// A text that HNS allocates and its caller frees; null if there is none.
    struct Text(PWSTR);

    impl Text {
        fn none() -> Self {
            Self(null_mut())
        }

        fn read(&self) -> String {
            if self.0.is_null() {
                return String::new();
            }
            // SAFETY: HNS ends the text with a zero, so all units before it are readable.
            let units = unsafe { slice::from_raw_parts(self.0, (0..).take_while(|at| *self.0.add(*at) != 0).count()) };
            String::from_utf16_lossy(units)
        }
    }

    impl Drop for Text {
        fn drop(&mut self) {
            // SAFETY: HNS allocated the text for this purpose, and no reference to it remains. Null may be freed.
            unsafe { CoTaskMemFree(self.0.cast::<c_void>()) };
        }
    }
}

/// A stub for systems without HNS, on which this program is only tested.
#[cfg(not(windows))]
mod calls {
    use super::{Kind, Refusal};

    /// The error code `E_NOTIMPL`.
    const ABSENT: u32 = 0x8000_4001;

    pub fn enumerate(_: Kind, _: &str) -> Result<String, Refusal> {
        Err(Refusal { code: ABSENT, record: r#"{"Error": "only Windows has this service"}"#.into() })
    }

    pub fn properties(kind: Kind, _: u128, query: &str) -> Result<String, Refusal> {
        enumerate(kind, query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_by_number_and_in_words() {
        let record = r#"{"Success": false, "Error": "The network was not found. ", "ErrorCode": 2151350273}"#;
        for (code, record, missing, told) in [
            (0x803B_0020, "", false, "0x803b0020: the service is stopped; on the node, `Start-Service hns` starts it"),
            (0x8007_06BA, "", false, "0x800706ba: the service is stopped; on the node, `Start-Service hns` starts it"),
            (0x803B_0001, record, true, "0x803b0001: The network was not found. "),
            (0x803B_0002, "", true, "0x803b0002: it says no more"),
            (0x8007_0005, "no JSON", false, "0x80070005: it says no more"),
        ] {
            let refusal = Refusal { code, record: record.into() };
            assert_eq!((refusal.is_missing(), refusal.to_string().as_str()), (missing, told));
        }
    }

    #[test]
    fn hns_is_asked_by_name_or_for_all_and_answers_with_guids() {
        let asked = |name| serde_json::from_str::<Value>(&query(name)).unwrap();
        assert_eq!(asked(Some("Calico")), json!({"SchemaVersion": {"Major": 2, "Minor": 0}, "Filter": r#"{"Name":"Calico"}"#}));
        assert_eq!(asked(None), json!({"SchemaVersion": {"Major": 2, "Minor": 0}}));
        for (list, expected) in [
            ("[]", Some(vec![])),
            (r#"["00000001-0002-0003-0004-00000000000A"]"#, Some(vec![0x0000_0001_0002_0003_0004_0000_0000_000A])),
            (r#"["Calico"]"#, None),
            ("", None),
        ] {
            assert_eq!(ids(list), expected, "{list}");
        }
    }

    #[cfg(not(windows))]
    #[test]
    fn a_failure_says_what_was_asked() {
        let Failure(why) = named(Kind::Endpoint, "Calico_ep").unwrap_err();
        assert_eq!(why, "HNS, asked for each endpoint with the name Calico_ep: 0x80004001: only Windows has this service");
        let Failure(why) = all(Kind::LoadBalancer).unwrap_err();
        assert_eq!(why, "HNS, asked for each load balancer: 0x80004001: only Windows has this service");
    }
}
