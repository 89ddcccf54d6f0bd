//! Rules about the KubeletConfiguration: L1, L2, L4 to L6, L15 to L17, L19 to L23.

use serde_json::{Map, Value};

use super::findings::Findings;
use super::input::Node;
use crate::api::bootstrap_config::ServingCertificate;
use crate::bootstrap::render::kubelet::surface::{Gate, Known, Surface, Windows};

const SIGNALS: [&str; 3] = ["memory.available", "nodefs.available", "imagefs.available"];
const EVICTION: [&str; 4] = ["evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim"];

pub(super) fn check(node: &Node<'_>, surface: &Surface, windows: &Windows, findings: &mut Findings) {
    known(node, surface, "", &node.config, findings);
    for (name, value) in node.extra {
        if let Some(instead) = windows.owned_fields.get(name) {
            findings.error("L23", place(node, name), shown(value), format!("CAPW sets this field: {instead}"));
        }
    }
    for (name, why) in &windows.linux_only {
        if let Some(value) = node.config.get(name).filter(|_| node.extra.contains_key(name)) {
            let remedy = format!("{why}: leave it out");
            // Some of these fields stop the kubelet, the others have no effect.
            if why.contains("refuse") {
                findings.error("L22", place(node, name), shown(value), remedy);
            } else {
                findings.warning("L22", place(node, name), shown(value), remedy);
            }
        }
    }
    managers(node, surface, windows, findings);
    cgroups(node, findings);
    paths(node, windows, findings);
    gates(node, surface, windows, findings);
    eviction(node, findings);
    shutdown(node, surface, findings);
    certificate(node, findings);
    images(node, surface, findings);
    log_query(node, surface, findings);
}

/// Returns the path of a field as users wrote it.
fn place(node: &Node<'_>, path: &str) -> String {
    let first = path.split('.').next().unwrap_or(path);
    let start = if node.extra.contains_key(first) { "spec.kubelet.extraConfig" } else { "KubeletConfiguration" };
    format!("{start}.{path}")
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn at<'a>(config: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = config.get(first)?;
    match rest {
        Some(rest) => at(value.as_object()?, rest),
        None => Some(value),
    }
}

/// Checks L20: every field exists in the minor. Checks L21: every value has its type.
fn known(node: &Node<'_>, surface: &Surface, prefix: &str, config: &Map<String, Value>, findings: &mut Findings) {
    for (name, value) in config {
        let path = format!("{prefix}{name}");
        let minor = node.minor;
        let remedy = match surface.field(&path, minor) {
            Known::Here(span) => {
                match (span.kind.as_str(), value) {
                    ("object", Value::Object(inner)) => known(node, surface, &format!("{path}."), inner, findings),
                    (kind, value) if !fits(kind, value) => {
                        findings.error("L21", place(node, &path), shown(value), format!("expected {}", expected(kind)));
                    }
                    _ => {}
                }
                continue;
            }
            Known::Later(since) => format!("the kubelet has this field from 1.{since} on, the node gets 1.{minor}: leave it out"),
            Known::Earlier(until) => format!("the kubelet had this field until 1.{until}, the node gets 1.{minor}: leave it out"),
            Known::Never => "the kubelet has no such field: correct the name; case matters".into(),
        };
        findings.error("L20", place(node, &path), shown(value), remedy);
    }
}

fn fits(kind: &str, value: &Value) -> bool {
    match kind {
        "bool" => value.is_boolean(),
        "int" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "duration" => value.as_str().is_some_and(|text| duration(text).is_some()),
        "list" => value.is_array(),
        "map" | "object" => value.is_object(),
        _ => true,
    }
}

fn expected(kind: &str) -> &str {
    match kind {
        "bool" => "true or false",
        "int" => "a whole number without quotes",
        "number" => "a number without quotes",
        "duration" => "a duration, e.g. 30s, 10m or 1h30m",
        "list" => "a list",
        "map" | "object" => "an object",
        _ => "a string",
    }
}

/// Returns a duration in Go's format, in seconds.
fn duration(text: &str) -> Option<f64> {
    let mut rest = text.strip_prefix('-').unwrap_or(text);
    if rest == "0" {
        return Some(0.0);
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest.get(..unit)?.parse().ok()?;
        let tail = rest.get(unit..)?;
        let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let (name, seconds) = units.into_iter().find(|(name, _)| tail.starts_with(name))?;
        total += number * seconds;
        rest = tail.get(name.len()..)?;
    }
    (!text.is_empty()).then_some(total)
}

/// Checks L22: the CPU and memory managers work only with a feature gate.
fn managers(node: &Node<'_>, surface: &Surface, windows: &Windows, findings: &mut Findings) {
    const GATE: &str = "WindowsCPUAndMemoryAffinity";
    if gate_on(node, surface, GATE) {
        return;
    }
    for name in &windows.resource_managers {
        let value = node.config.get(name).filter(|value| !matches!(value.as_str(), Some("none" | "None")));
        if let Some(value) = value {
            let remedy = format!("it works on Windows only with the feature gate {GATE} (alpha from 1.32): leave it out, or enable the gate");
            findings.warning("L22", place(node, name), shown(value), remedy);
        }
    }
}

/// Checks L1: two fields that Windows needs.
fn cgroups(node: &Node<'_>, findings: &mut Findings) {
    if node.config.get("cgroupsPerQOS") != Some(&Value::Bool(false)) {
        let value = node.config.get("cgroupsPerQOS").map_or_else(|| "true".into(), shown);
        findings.error("L1", place(node, "cgroupsPerQOS"), value, "Windows has no cgroups: it must be false");
    }
    let enforced = node.config.get("enforceNodeAllocatable").and_then(Value::as_array);
    if !enforced.is_some_and(|names| names.iter().all(|name| name == "none")) {
        let value = node.config.get("enforceNodeAllocatable").map_or_else(|| "pods".into(), shown);
        findings.error("L1", place(node, "enforceNodeAllocatable"), value, "Windows has no cgroups: it must be [\"none\"]");
    }
}

/// Checks L2: paths must have a drive.
fn paths(node: &Node<'_>, windows: &Windows, findings: &mut Findings) {
    let drive = |text: &str| {
        let bytes = text.as_bytes();
        bytes.first().is_some_and(u8::is_ascii_alphabetic) && matches!(text.get(1..3), Some(":\\" | ":/"))
    };
    if let Some(path) = node.config.get("resolvConf").and_then(Value::as_str).filter(|path| !["", "Host"].contains(path) && !drive(path)) {
        let remedy = "every pod would fail: expected \"\", \"Host\" or a file with its drive, e.g. C:\\etc\\resolv.conf";
        findings.error("L2", place(node, "resolvConf"), path, remedy);
    }
    for field in &windows.paths {
        if let Some(path) = at(&node.config, field).and_then(Value::as_str).filter(|path| !path.is_empty() && !drive(path)) {
            findings.error("L2", place(node, field), path, "this is not a Windows path: expected one with its drive, e.g. C:\\etc\\kubernetes");
        }
    }
}

/// Checks L4 and L16: feature gates must exist and be settable.
fn gates(node: &Node<'_>, surface: &Surface, windows: &Windows, findings: &mut Findings) {
    let Some(gates) = node.config.get("featureGates").and_then(Value::as_object) else { return };
    for (name, value) in gates {
        let field = place(node, &format!("featureGates.{name}"));
        let minor = node.minor;
        let Some(wanted) = value.as_bool() else {
            findings.error("L4", field, shown(value), "expected true or false");
            continue;
        };
        if wanted && windows.quota_gates.contains(name) {
            findings.warning("L16", &field, "true", "this gate only concerns Linux: leave it out");
        }
        match surface.gate(name, minor) {
            Ok(Gate { locked: true, enabled, .. }) if enabled != wanted => {
                let remedy = format!("it is locked to {enabled} in 1.{minor}, and the kubelet would not start: leave it out");
                findings.error("L4", field, shown(value), remedy);
            }
            Ok(Gate { locked: true, .. }) => {
                findings.warning("L4", field, shown(value), format!("it is locked to this value in 1.{minor} and will be removed: leave it out"));
            }
            Ok(Gate { deprecated: true, .. }) => {
                findings.warning("L4", field, shown(value), format!("this gate is deprecated in 1.{minor} and will be removed: leave it out"));
            }
            Ok(_) => {}
            Err(Known::Later(since)) => {
                let remedy = format!("this gate does not exist before 1.{since}, and the kubelet would not start: leave it out");
                findings.error("L4", field, shown(value), remedy);
            }
            Err(Known::Earlier(until)) => {
                let remedy = format!("this gate does not exist after 1.{until}, and the kubelet would not start: leave it out");
                findings.error("L4", field, shown(value), remedy);
            }
            Err(_) => findings.error(
                "L4",
                field,
                shown(value),
                "this gate does not exist, and the kubelet would not start: correct the name or leave it out",
            ),
        }
    }
}

fn gate_on(node: &Node<'_>, surface: &Surface, name: &str) -> bool {
    let asked = node.config.get("featureGates").and_then(|gates| gates.get(name)).and_then(Value::as_bool);
    surface.gate(name, node.minor).is_ok_and(|gate| asked.unwrap_or(gate.enabled))
}

/// Checks L5: thresholds must be complete. Checks L6: Windows must have the signal.
fn eviction(node: &Node<'_>, findings: &mut Findings) {
    let hard = node.config.get("evictionHard").and_then(Value::as_object);
    let merged = node.config.get("mergeDefaultEvictionSettings") == Some(&Value::Bool(true));
    let missing: Vec<&str> = SIGNALS.into_iter().filter(|signal| !hard.is_some_and(|hard| hard.contains_key(*signal))).collect();
    if !missing.is_empty() && !merged {
        let remedy = format!("if one threshold is set, missing ones count as 0: set {} as well", missing.join(" and "));
        findings.error("L5", place(node, "evictionHard"), hard.map_or_else(String::new, |hard| Value::Object(hard.clone()).to_string()), remedy);
    }
    for field in EVICTION {
        for (signal, value) in node.config.get(field).and_then(Value::as_object).into_iter().flatten() {
            if signal.ends_with(".inodesFree") || signal == "pid.available" || signal.starts_with("containerfs.") {
                let remedy = format!("Windows has no such signal: use {}", SIGNALS.join(", "));
                findings.error("L6", place(node, &format!("{field}.{signal}")), shown(value), remedy);
            }
        }
    }
}

/// Checks L15: the graceful shutdown of a node.
fn shutdown(node: &Node<'_>, surface: &Surface, findings: &mut Findings) {
    let seconds = |name: &str| node.config.get(name).and_then(Value::as_str).and_then(duration).unwrap_or(0.0);
    let (total, critical) = (seconds("shutdownGracePeriod"), seconds("shutdownGracePeriodCriticalPods"));
    if critical > total {
        let remedy = "it is part of shutdownGracePeriod and must not be longer: the kubelet would not start";
        findings.error("L15", place(node, "shutdownGracePeriodCriticalPods"), format!("{critical}s of {total}s"), remedy);
    }
    if total > 0.0 && node.config.contains_key("shutdownGracePeriodByPodPriority") {
        let remedy = "the kubelet takes this or shutdownGracePeriod, not both: set shutdownGracePeriod and shutdownGracePeriodCriticalPods to 0s";
        findings.error("L15", place(node, "shutdownGracePeriodByPodPriority"), "both", remedy);
    }
    const GATE: &str = "WindowsGracefulNodeShutdown";
    if (total > 0.0 || node.config.contains_key("shutdownGracePeriodByPodPriority")) && !gate_on(node, surface, GATE) {
        let remedy = format!("it has no effect on Windows without the feature gate {GATE} (alpha in 1.32, on from 1.34)");
        findings.warning("L15", place(node, "shutdownGracePeriod"), format!("{total}s"), remedy);
    }
}

/// Checks L17: who signs the kubelet's serving certificate.
fn certificate(node: &Node<'_>, findings: &mut Findings) {
    let signed = node.config.get("serverTLSBootstrap") == Some(&Value::Bool(true));
    if signed && node.facts.spec.kubelet.serving_certificate != ServingCertificate::ClusterSigned {
        let remedy = "logs, exec and metrics fail until the node's certificate requests are approved: if your cluster has an approver, set spec.kubelet.servingCertificate to ClusterSigned; otherwise leave it out";
        findings.error("L17", place(node, "serverTLSBootstrap"), "true", remedy);
    }
}

/// Checks L19: images in the machine's image must stay usable.
fn images(node: &Node<'_>, surface: &Surface, findings: &mut Findings) {
    const POLICY: &str = "imagePullCredentialsVerificationPolicy";
    const LIST: &str = "preloadedImagesVerificationAllowlist";
    const GATE: &str = "KubeletEnsureSecretPulledImages";
    let policy = node.config.get(POLICY).and_then(Value::as_str);
    let listed = node.config.get(LIST).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    for field in [POLICY, LIST].into_iter().filter(|field| node.config.contains_key(*field)) {
        if !gate_on(node, surface, GATE) {
            findings.error("L19", place(node, field), "", format!("the kubelet refuses it without the feature gate {GATE} (on from 1.35)"));
        }
    }
    if policy == Some("NeverVerifyAllowlistedImages") && !listed {
        let remedy = format!("the kubelet would verify preloaded images with their registries: name them in {LIST}");
        findings.error("L19", place(node, POLICY), policy.unwrap_or_default(), remedy);
    }
    if policy == Some("AlwaysVerify") {
        let remedy = "every preloaded image, including the sandbox image, then needs its registry at each use";
        findings.warning("L19", place(node, POLICY), "AlwaysVerify", remedy);
    }
    if listed && policy != Some("NeverVerifyAllowlistedImages") {
        findings.error("L19", place(node, LIST), "", format!("the kubelet accepts it only with {POLICY}: NeverVerifyAllowlistedImages"));
    }
}

/// Checks L4: log queries need a feature gate and the log handler.
fn log_query(node: &Node<'_>, surface: &Surface, findings: &mut Findings) {
    if node.config.get("enableSystemLogQuery") != Some(&Value::Bool(true)) {
        return;
    }
    if !gate_on(node, surface, "NodeLogQuery") {
        let remedy = "the kubelet refuses it without the feature gate NodeLogQuery: use spec.kubelet.logQuery";
        findings.error("L4", place(node, "enableSystemLogQuery"), "true", remedy);
    }
    if node.config.get("enableSystemLogHandler") != Some(&Value::Bool(true)) {
        let remedy = "the kubelet refuses enableSystemLogQuery without it: set spec.kubelet.logQuery to false, or leave this out";
        findings.error("L4", place(node, "enableSystemLogHandler"), "false", remedy);
    }
}
