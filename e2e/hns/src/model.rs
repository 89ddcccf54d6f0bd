//! The kinds of objects, and how HNS turns requests into objects. No input, no output.

use serde_json::{Map, Value, json};

/// Error numbers, by their Windows names.
pub mod code {
    pub const NETWORK_NOT_FOUND: u32 = 0x803B_0001;
    pub const ENDPOINT_NOT_FOUND: u32 = 0x803B_0002;
    pub const POLICY_NOT_FOUND: u32 = 0x803B_0008;
    pub const NETWORK_ALREADY_EXISTS: u32 = 0x803B_0010;
    pub const ENDPOINT_ALREADY_ATTACHED: u32 = 0x803B_0014;
    pub const REQUEST_UNSUPPORTED: u32 = 0x803B_0015;
    pub const INVALID_JSON: u32 = 0x803B_001B;
    pub const MANAGER_STOPPED: u32 = 0x803B_0020;
    pub const ELEMENT_NOT_FOUND: u32 = 0x8007_0490;
}

/// Why a call fails: the `HRESULT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure(pub u32);

impl Failure {
    /// The error text of the older API, which its callers read.
    pub fn words(self) -> String {
        match self.0 {
            code::ENDPOINT_ALREADY_ATTACHED => "This endpoint is already attached to the switch. ".to_owned(),
            code => format!("HNS failed with error {code:#x}"),
        }
    }
}

/// States of endpoints, as numbers of the older API.
const CREATED: u32 = 1;
const ATTACHED: u32 = 2;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Network,
    Endpoint,
    Namespace,
    LoadBalancer,
    Route,
}

impl Kind {
    /// The directory of this kind's objects.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Network => "networks",
            Self::Endpoint => "endpoints",
            Self::Namespace => "namespaces",
            Self::LoadBalancer => "loadbalancers",
            Self::Route => "routes",
        }
    }

    pub fn missing(self) -> Failure {
        Failure(match self {
            Self::Network => code::NETWORK_NOT_FOUND,
            Self::Endpoint => code::ENDPOINT_NOT_FOUND,
            Self::LoadBalancer | Self::Route => code::POLICY_NOT_FOUND,
            Self::Namespace => code::ELEMENT_NOT_FOUND,
        })
    }
}

/// Parses JSON, or fails with `INVALID_JSON`.
pub fn parse(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|_| Failure(code::INVALID_JSON))
}

fn list<'a>(object: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Vec<Value>> {
    object.entry(key.to_owned()).or_insert_with(|| json!([])).as_array_mut()
}

/// The object with these settings, named `id`. `network` is the network of an endpoint.
pub fn created(kind: Kind, id: &str, settings: &str, network: Option<&str>, address: &str) -> Result<Value, Failure> {
    let Value::Object(mut object) = parse(settings)? else { return Err(Failure(code::INVALID_JSON)) };
    object.insert("ID".to_owned(), json!(id));
    if let Some(network) = network {
        object.insert("HostComputeNetwork".to_owned(), json!(network));
    }
    if kind == Kind::Network && object.get("Type") == Some(&json!("Overlay")) {
        let policies = list(&mut object, "Policies").ok_or(Failure(code::INVALID_JSON))?;
        policies.push(json!({"Type": "ProviderAddress", "Settings": {"ProviderAddress": address}}));
        policies.push(json!({"Type": "DrMacAddress", "Settings": {"Address": mac("dr", address)}}));
    }
    if kind == Kind::Endpoint && object.get("MacAddress").is_none_or(|mac| mac == "") {
        object.insert("MacAddress".to_owned(), json!(mac("ep", id)));
    }
    Ok(Value::Object(object))
}

/// A MAC address in Hyper-V's range, the same for the same arguments.
fn mac(what: &str, of: &str) -> String {
    let sum = what.bytes().chain(of.bytes()).fold(0x811C_9DC5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [_, a, b, c] = sum.to_be_bytes();
    format!("00-15-5D-{a:02X}-{b:02X}-{c:02X}")
}

/// The object after a change.
pub fn modified(kind: Kind, object: &Value, settings: &str) -> Result<Value, Failure> {
    let change = parse(settings)?;
    let text = |key: &str| change.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut object = object.as_object().cloned().unwrap_or_default();
    if kind == Kind::LoadBalancer {
        let id = object.remove("ID").unwrap_or_default();
        let Value::Object(mut new) = change else { return Err(Failure(code::INVALID_JSON)) };
        new.insert("ID".to_owned(), id);
        return Ok(Value::Object(new));
    }
    let of_settings = change.get("Settings").cloned().unwrap_or_default();
    let (key, items) = match (kind, text("ResourceType")) {
        (Kind::Network | Kind::Endpoint, "Policy") => {
            ("Policies", of_settings.get("Policies").and_then(Value::as_array).cloned().unwrap_or_default())
        }
        (Kind::Namespace, resource @ ("Endpoint" | "Container")) => ("Resources", vec![json!({"Type": resource, "Data": of_settings})]),
        _ => return Err(Failure(code::REQUEST_UNSUPPORTED)),
    };
    let there = list(&mut object, key).ok_or(Failure(code::INVALID_JSON))?;
    match text("RequestType") {
        "Add" => there.extend(items),
        "Remove" => there.retain(|item| !items.contains(item)),
        "Update" => *there = items,
        _ => return Err(Failure(code::REQUEST_UNSUPPORTED)),
    }
    Ok(Value::Object(object))
}

/// Whether an object matches a query.
pub fn is_asked_for(object: &Value, query: &str) -> Result<bool, Failure> {
    let query = if query.is_empty() { Value::Null } else { parse(query)? };
    let filter = match query.get("Filter").and_then(Value::as_str) {
        None | Some("") => return Ok(true),
        Some(filter) => parse(filter)?,
    };
    let matches = |(key, value): (&String, &Value)| {
        let key = if key == "VirtualNetwork" { "HostComputeNetwork" } else { key.as_str() };
        let both = (object.get(key).and_then(Value::as_str), value.as_str());
        matches!(both, (Some(is), Some(asked)) if is.eq_ignore_ascii_case(asked))
    };
    Ok(filter.as_object().is_none_or(|filter| filter.iter().all(matches)))
}

/// A network in the form of the older API.
pub fn older(network: &Value) -> Value {
    let policies = network.get("Policies").and_then(Value::as_array).into_iter().flatten();
    let setting = |kind: &str, key: &str| {
        let policy = policies.clone().find(|policy| policy.get("Type").and_then(Value::as_str) == Some(kind));
        policy.and_then(|policy| policy.get("Settings")?.get(key).cloned()).unwrap_or_default()
    };
    let ranges = network.get("Ipams").and_then(Value::as_array).into_iter().flatten();
    let subnets = ranges.flat_map(|ipam| ipam.get("Subnets").and_then(Value::as_array).into_iter().flatten()).map(|subnet| {
        let gateway = subnet.pointer("/Routes/0/NextHop").cloned().unwrap_or_default();
        json!({"AddressPrefix": subnet.get("IpAddressPrefix"), "GatewayAddress": gateway})
    });
    json!({
        "ID": network.get("ID"),
        "Name": network.get("Name"),
        "Type": network.get("Type"),
        "ManagementIP": setting("ProviderAddress", "ProviderAddress"),
        "NetworkAdapterName": setting("NetAdapterName", "NetworkAdapterName"),
        "Subnets": subnets.collect::<Vec<_>>(),
    })
}

/// Translates a network of the older API's create request to the newer API.
pub fn newer(network: &Value, address: &str) -> Value {
    let subnets = network.get("Subnets").and_then(Value::as_array).into_iter().flatten().map(|subnet| {
        let routes = json!([{"NextHop": subnet.get("GatewayAddress"), "DestinationPrefix": "0.0.0.0/0"}]);
        json!({"IpAddressPrefix": subnet.get("AddressPrefix"), "Routes": routes})
    });
    json!({
        "Name": network.get("Name"),
        "Type": network.get("Type"),
        "Ipams": [{"Type": "Static", "Subnets": subnets.collect::<Vec<_>>()}],
        "Policies": [
            {"Type": "NetAdapterName", "Settings": {"NetworkAdapterName": network.get("NetworkAdapterName")}},
            {"Type": "ProviderAddress", "Settings": {"ProviderAddress": address}},
        ],
    })
}

/// An endpoint in the form of the older API.
pub fn older_endpoint(endpoint: &Value) -> Value {
    json!({
        "ID": endpoint.get("ID"),
        "Name": endpoint.get("Name"),
        "VirtualNetwork": endpoint.get("HostComputeNetwork"),
        "IPAddress": endpoint.pointer("/IpConfigurations/0/IpAddress"),
        "GatewayAddress": endpoint.pointer("/Routes/0/NextHop"),
        "MacAddress": endpoint.get("MacAddress"),
        "State": endpoint.get("State"),
    })
}

/// Translates an endpoint of the older API's create request to the newer API.
pub fn newer_endpoint(endpoint: &Value) -> Value {
    let routes = endpoint.get("GatewayAddress").map(|gateway| json!({"NextHop": gateway, "DestinationPrefix": "0.0.0.0/0"}));
    json!({
        "Name": endpoint.get("Name"),
        "IpConfigurations": [{"IpAddress": endpoint.get("IPAddress")}],
        "Routes": routes.into_iter().collect::<Vec<_>>(),
        "Policies": [],
        "State": CREATED,
    })
}

/// The endpoint after it was attached to the node itself.
pub fn attached(endpoint: &Value) -> Result<Value, Failure> {
    let mut endpoint = endpoint.as_object().cloned().unwrap_or_default();
    match endpoint.insert("State".to_owned(), json!(ATTACHED)) {
        Some(state) if state == json!(ATTACHED) => Err(Failure(code::ENDPOINT_ALREADY_ATTACHED)),
        _ => Ok(Value::Object(endpoint)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn an_overlay_network_gets_the_nodes_address_and_a_router() {
        let settings =
            r#"{"Name": "flannel.4096", "Type": "Overlay", "Policies": [{"Type": "NetAdapterName", "Settings": {"NetworkAdapterName": "eth0"}}]}"#;
        let network = created(Kind::Network, "A", settings, None, "10.0.0.5").unwrap();
        assert_eq!(network["Policies"].as_array().unwrap().len(), 3);
        assert_eq!(older(&network)["ManagementIP"], "10.0.0.5");
        let bridge = created(Kind::Network, "B", r#"{"Name": "cbr0", "Type": "L2Bridge"}"#, None, "10.0.0.5").unwrap();
        assert!(bridge.get("Policies").is_none());
        assert_eq!(created(Kind::Network, "C", "[]", None, ""), Err(Failure(code::INVALID_JSON)));
    }

    #[test]
    fn policies_are_added_and_taken_away() {
        let network = json!({"ID": "A", "Policies": [{"Type": "X"}]});
        let route = r#"{"Type": "RemoteSubnetRoute", "Settings": {"DestinationPrefix": "10.244.1.0/24"}}"#;
        let change = |request: &str| format!(r#"{{"ResourceType": "Policy", "RequestType": "{request}", "Settings": {{"Policies": [{route}]}}}}"#);
        let with = modified(Kind::Network, &network, &change("Add")).unwrap();
        assert_eq!(with["Policies"].as_array().unwrap().len(), 2);
        assert_eq!(modified(Kind::Network, &with, &change("Remove")).unwrap(), network);
        assert_eq!(modified(Kind::Network, &network, &change("Refresh")), Err(Failure(code::REQUEST_UNSUPPORTED)));
        let namespace =
            modified(Kind::Namespace, &json!({"ID": "N"}), r#"{"ResourceType": "Endpoint", "RequestType": "Add", "Settings": {"Id": "E"}}"#);
        assert_eq!(namespace.unwrap()["Resources"], json!([{"Type": "Endpoint", "Data": {"Id": "E"}}]));
        let balancer = modified(Kind::LoadBalancer, &json!({"ID": "L", "FrontendVIPs": ["10.96.0.1"]}), r#"{"FrontendVIPs": ["10.96.0.9"]}"#);
        assert_eq!(balancer.unwrap(), json!({"ID": "L", "FrontendVIPs": ["10.96.0.9"]}));
    }

    #[test]
    fn a_query_asks_by_name_by_id_or_for_the_endpoints_of_a_network() {
        let endpoint = json!({"ID": "AB", "Name": "one", "HostComputeNetwork": "CD"});
        for (query, expected) in [
            ("", true),
            (r#"{"SchemaVersion": {"Major": 2}}"#, true),
            (r#"{"Filter": "{\"Name\":\"one\"}"}"#, true),
            (r#"{"Filter": "{\"Name\":\"two\"}"}"#, false),
            (r#"{"Filter": "{\"ID\":\"ab\"}"}"#, true),
            (r#"{"Filter": "{\"VirtualNetwork\":\"cd\"}"}"#, true),
            (r#"{"Filter": "{\"VirtualNetwork\":\"ce\"}"}"#, false),
        ] {
            assert_eq!(is_asked_for(&endpoint, query), Ok(expected), "{query}");
        }
        assert_eq!(is_asked_for(&endpoint, "{"), Err(Failure(code::INVALID_JSON)));
    }

    #[test]
    fn the_older_api_makes_the_same_network() {
        let asked = json!({"Name": "cbr0", "Type": "L2Bridge", "Subnets": [{"AddressPrefix": "10.244.1.0/24", "GatewayAddress": "10.244.1.1"}],
            "NetworkAdapterName": "Ethernet"});
        let shown = older(&newer(&asked, "10.0.0.5"));
        for key in ["Name", "Type", "Subnets", "NetworkAdapterName"] {
            assert_eq!(shown[key], asked[key], "{key}");
        }
        assert_eq!(shown["ManagementIP"], "10.0.0.5");
    }
}
