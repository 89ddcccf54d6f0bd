//! What is kept for Windows and for the node's own programs (`windows-bootstrap.md` §4.6). Memory on Windows is commit: without
//! reserves a full node pages instead of evicting.

use super::error::RenderError;
use super::facts::BootstrapFacts;
use crate::api::bootstrap_config::Reserve;
use crate::api::name::mebibytes;

/// Pods on a node that says nothing, and on one with less memory than [`SMALL_MIB`].
const PODS: u32 = 110;
const PODS_SMALL: u32 = 30;
const SMALL_MIB: u64 = 8 << 10;

/// Processors in thousandths, memory in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    pub milli_cpu: u64,
    pub memory_mib: u64,
}

/// What a node keeps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserves {
    pub max_pods: u32,
    pub system: Amount,
    pub kube: Amount,
    /// The kubelet evicts pods below this much free memory.
    pub eviction_mib: u64,
}

/// Computed from processors and memory; each field that the user gives wins.
pub fn reserves(facts: &BootstrapFacts) -> Result<Reserves, RenderError> {
    let kubelet = &facts.spec.kubelet;
    let max_pods = match kubelet.max_pods.map(u32::try_from) {
        Some(Ok(pods @ 1..=250)) => pods,
        Some(_) => return Err(RenderError::invalid("spec.kubelet.maxPods", format!("{:?}", kubelet.max_pods), "give a number from 1 to 250")),
        None if facts.memory_mib.is_some_and(|mib| mib < SMALL_MIB) => PODS_SMALL,
        None => PODS,
    };
    // A machine that is not known counts as a small one.
    let memory = facts.memory_mib.unwrap_or(0);
    let cpus = facts.cpus.unwrap_or(2);
    let computed = Reserves {
        max_pods,
        system: Amount { milli_cpu: if cpus <= 2 { 250 } else { 500 }, memory_mib: (2048 + memory / 25).clamp(2048, 6144) },
        kube: Amount { milli_cpu: kube_cpu(cpus), memory_mib: 256 + u64::from(max_pods) * 12_288 / 1000 },
        eviction_mib: (memory * 3 / 100).max(500),
    };
    let reserves = Reserves {
        system: given("spec.kubelet.systemReserved", &kubelet.system_reserved, computed.system)?,
        kube: given("spec.kubelet.kubeReserved", &kubelet.kube_reserved, computed.kube)?,
        ..computed
    };
    fits(facts, &reserves)?;
    Ok(reserves)
}

/// The steps of AKS.
fn kube_cpu(cpus: u32) -> u64 {
    match cpus {
        0..=1 => 60,
        2..=3 => 100,
        4..=7 => 140,
        8..=15 => 180,
        16..=31 => 260,
        32..=63 => 420,
        _ => 740,
    }
}

fn given(field: &str, reserve: &Reserve, computed: Amount) -> Result<Amount, RenderError> {
    let milli_cpu = reserve.cpu.as_deref().map(|text| {
        let (number, factor) = text.strip_suffix('m').map_or((text, 1000), |milli| (milli, 1));
        let value = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
        value.ok_or_else(|| RenderError::invalid(format!("{field}.cpu"), text, "give processors or thousandths of one, e.g. 500m"))
    });
    let memory_mib = reserve
        .memory
        .as_deref()
        .map(|text| mebibytes(text).map_err(|_| RenderError::invalid(format!("{field}.memory"), text, "give a whole number of Mi or Gi, e.g. 2Gi")));
    Ok(Amount { milli_cpu: milli_cpu.unwrap_or(Ok(computed.milli_cpu))?, memory_mib: memory_mib.unwrap_or(Ok(computed.memory_mib))? })
}

/// A kubelet whose reserves are larger than the machine does not start.
fn fits(facts: &BootstrapFacts, reserves: &Reserves) -> Result<(), RenderError> {
    let kept = reserves.system.memory_mib.saturating_add(reserves.kube.memory_mib).saturating_add(reserves.eviction_mib);
    if let Some(memory) = facts.memory_mib.filter(|memory| kept >= *memory) {
        let remedy = format!(
            "Windows ({}Mi), the node's own programs ({}Mi) and the eviction threshold ({}Mi) need {kept}Mi: give the machine more memory, or lower spec.kubelet.maxPods or the reserves",
            reserves.system.memory_mib, reserves.kube.memory_mib, reserves.eviction_mib
        );
        return Err(RenderError::invalid("spec.memory of the machine", format!("{memory}Mi"), remedy));
    }
    let milli = reserves.system.milli_cpu.saturating_add(reserves.kube.milli_cpu);
    if let Some(cpus) = facts.cpus.filter(|cpus| milli >= u64::from(*cpus) * 1000) {
        let remedy =
            format!("the reserves need {milli}m: give the machine more processors, or lower spec.kubelet.systemReserved.cpu and kubeReserved.cpu");
        return Err(RenderError::invalid("spec.cpus of the machine", cpus.to_string(), remedy));
    }
    Ok(())
}
