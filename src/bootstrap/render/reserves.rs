//! The reserves for Windows and for the node's own programs (docs/reserves.md). Memory on Windows is commit: without reserves a
//! full node pages instead of evicting. Every amount is shown with its arithmetic, and users can override each amount.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::api::bootstrap_config::{Reserve, ReserveProfile, WindowsBootstrapConfigSpec};
use crate::api::machine::WindowsMachineSpec;
use crate::api::name::mebibytes;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;

/// The default pods per node, and the pods of a node with at most [`SMALL_MIB`] of memory, where the shims of 110 pods would take a fifth of it.
const PODS: u64 = 110;
const PODS_SMALL: u64 = 30;
const SMALL_MIB: u64 = 8 << 10;
/// The disk for each of system and kube: logs, images being unpacked, the node's own programs.
const EPHEMERAL_MIB: u64 = 1024;

/// CPU in millicores, memory and disk in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    pub milli_cpu: u64,
    pub memory_mib: u64,
    pub ephemeral_mib: u64,
}

/// The reserves of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserves {
    pub max_pods: u32,
    /// The size of the fixed page file.
    pub page_file_mib: u64,
    pub system: Amount,
    pub kube: Amount,
    /// The threshold `memory.available` in MiB, even if it is given as a percentage.
    pub eviction_mib: u64,
    /// All signals of a kubelet on Windows: if one signal is set, missing signals count as 0.
    pub eviction_hard: BTreeMap<&'static str, String>,
    /// The calculation of each amount, in order.
    pub terms: Vec<Term>,
    /// A warning for the user, if there is one.
    pub warning: Option<String>,
}

/// One line of the arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The configuration field, or a result of it.
    pub name: String,
    /// The value with its unit.
    pub value: String,
    /// The calculation, or the field that set it.
    pub how: String,
}

/// A result and its calculation.
type Computed = (u64, String);

#[derive(Clone, Copy)]
enum Unit {
    Milli,
    Mebi,
    Count,
}

impl Unit {
    fn show(self, value: u64) -> String {
        match self {
            Self::Milli => format!("{value}m"),
            Self::Mebi => format!("{value}Mi"),
            Self::Count => value.to_string(),
        }
    }

    fn read(self, text: &str) -> Result<u64, &'static str> {
        match self {
            Self::Milli => {
                let (number, factor) = text.strip_suffix('m').map_or((text, 1000), |milli| (milli, 1));
                let value = number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor));
                value.ok_or("give a number of processors or millicores, e.g. 500m")
            }
            Self::Mebi => mebibytes(text).map_err(|_| "give a whole number of Mi or Gi, e.g. 2Gi"),
            Self::Count => text.parse().map_err(|_| "give a whole number"),
        }
    }
}

/// The lines so far.
#[derive(Default)]
struct Sheet(Vec<Term>);

impl Sheet {
    fn note(&mut self, name: &str, value: String, how: String) {
        self.0.push(Term { name: name.into(), value, how });
    }

    /// Returns the user's value, or else the computed one, and notes it. `name` is the field below `spec.kubelet`.
    fn amount(&mut self, name: &str, unit: Unit, (computed, how): Computed, given: Option<&str>) -> Result<u64, RenderError> {
        let Some(text) = given else {
            self.note(name, unit.show(computed), how);
            return Ok(computed);
        };
        let field = format!("spec.kubelet.{name}");
        let value = unit.read(text).map_err(|remedy| RenderError::invalid(field.as_str(), text, remedy))?;
        self.note(name, unit.show(value), format!("given by {field}; computed: {}", unit.show(computed)));
        Ok(value)
    }

    fn reserve(&mut self, name: &str, given: &Reserve, cpu: Computed, memory: Computed) -> Result<Amount, RenderError> {
        let disk = (EPHEMERAL_MIB, "always".to_owned());
        Ok(Amount {
            milli_cpu: self.amount(&format!("{name}.cpu"), Unit::Milli, cpu, given.cpu.as_deref())?,
            memory_mib: self.amount(&format!("{name}.memory"), Unit::Mebi, memory, given.memory.as_deref())?,
            ephemeral_mib: self.amount(&format!("{name}.ephemeralStorage"), Unit::Mebi, disk, given.ephemeral_storage.as_deref())?,
        })
    }

    /// Returns a threshold as text: a percentage stays a percentage.
    fn threshold(&mut self, signal: &str, (computed, how): (String, String), given: Option<&str>) -> Result<String, RenderError> {
        let name = format!("evictionHard[{signal}]");
        let Some(text) = given else {
            self.note(&name, computed.clone(), how);
            return Ok(computed);
        };
        let percentage = text.strip_suffix('%').is_some_and(|number| number.parse::<u64>().is_ok_and(|n| (1..100).contains(&n)));
        if !percentage && mebibytes(text).is_err() {
            return Err(RenderError::invalid(format!("spec.kubelet.{name}"), text, "give a whole number with Mi, Gi or %, e.g. 500Mi or 10%"));
        }
        self.note(&name, text.into(), format!("given by spec.kubelet.{name}; computed: {computed}"));
        Ok(text.into())
    }
}

/// The input of the reserves.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    pub spec: &'a WindowsBootstrapConfigSpec,
    pub cpus: Option<u32>,
    pub memory_mib: Option<u64>,
    pub system_disk_gib: Option<u64>,
    /// The number of pods that can have an address on the node. `None`: not known.
    pub pods_per_node: Option<u64>,
}

/// Returns the reserves of a machine that is being rendered.
pub fn reserves(facts: &BootstrapFacts) -> Result<Reserves, RenderError> {
    reserves_of(Machine {
        spec: &facts.spec,
        cpus: facts.cpus,
        memory_mib: facts.memory_mib,
        system_disk_gib: facts.system_disk_gib,
        pods_per_node: facts.pods_per_node,
    })
}

/// Computes the reserves from CPUs, memory, system disk and pods; the user's fields win.
pub fn reserves_of(facts: Machine<'_>) -> Result<Reserves, RenderError> {
    let spec = &facts.spec.kubelet;
    let mut sheet = Sheet::default();
    // An unknown machine counts as a small one.
    let memory = facts.memory_mib.unwrap_or(0);
    let cpus = facts.cpus.unwrap_or(2);
    let given_pods = spec.max_pods.map(|pods| pods.to_string());
    let max_pods = sheet.amount("maxPods", Unit::Count, pods(facts.memory_mib, facts.pods_per_node), given_pods.as_deref())?;
    if !(1..=250).contains(&max_pods) {
        return Err(RenderError::invalid("spec.kubelet.maxPods", max_pods.to_string(), "give a number from 1 to 250"));
    }
    let page_file_mib = page_file(facts, memory, &mut sheet)?;
    let system = sheet.reserve("systemReserved", &spec.system_reserved, system_cpu(cpus), system_memory(memory))?;
    let kube = sheet.reserve("kubeReserved", &spec.kube_reserved, kube_cpu(cpus), kube_memory(max_pods))?;
    let (computed, how) = eviction(spec.reserve_profile.unwrap_or_default(), memory, page_file_mib);
    let given = &spec.eviction_hard;
    let by_default = |value: &str| (value.to_owned(), "as Kubernetes does on Windows".to_owned());
    let memory_available = sheet.threshold("memory.available", (Unit::Mebi.show(computed), how), given.memory_available.as_deref())?;
    let nodefs = sheet.threshold("nodefs.available", by_default("10%"), given.nodefs_available.as_deref())?;
    let imagefs = sheet.threshold("imagefs.available", by_default("15%"), given.imagefs_available.as_deref())?;
    let eviction_mib = match memory_available.strip_suffix('%').and_then(|number| number.parse::<u64>().ok()) {
        Some(percent) => memory * percent / 100,
        None => mebibytes(&memory_available).unwrap_or(computed),
    };
    let mut reserves = Reserves {
        max_pods: u32::try_from(max_pods).unwrap_or(u32::MAX),
        page_file_mib,
        system,
        kube,
        eviction_mib,
        eviction_hard: BTreeMap::from([("memory.available", memory_available), ("nodefs.available", nodefs), ("imagefs.available", imagefs)]),
        terms: Vec::new(),
        warning: None,
    };
    reserves.warning = fits(facts, &reserves, &mut sheet)?;
    reserves.terms = sheet.0;
    Ok(reserves)
}

/// Computes the number of pods: at most as many as can have an address on the node.
fn pods(memory: Option<u64>, addresses: Option<u64>) -> Computed {
    let (pods, how) = match memory {
        Some(mib) if mib <= SMALL_MIB => (PODS_SMALL, format!("{PODS_SMALL} with at most {SMALL_MIB}Mi of memory, else {PODS}")),
        _ => (PODS, format!("{PODS}, or {PODS_SMALL} with at most {SMALL_MIB}Mi of memory")),
    };
    match addresses {
        Some(addresses) if addresses < pods => (addresses.max(1), format!("{how}; its part of the pod network has addresses for {addresses} pods")),
        _ => (pods, how),
    }
}

/// Computes the page file: a quarter of the memory, enough for a kernel dump and unused commit; a larger one would only hide a lack of memory.
fn page_file(facts: Machine<'_>, memory: u64, sheet: &mut Sheet) -> Result<u64, RenderError> {
    let quarter = memory / 4;
    let wanted = quarter.clamp(4 << 10, 16 << 10);
    let mut how = format!("{memory}Mi / 4 = {quarter}Mi, at least 4096Mi, at most 16384Mi");
    let mut computed = wanted;
    if let Some(disk) = facts.system_disk_gib {
        let most = (disk << 10) * 15 / 100;
        computed = wanted.min(most);
        how.push_str(&format!(", at most 15% of C: = {most}Mi"));
    }
    let Some(given) = facts.spec.windows.page_file_mib else {
        sheet.note("page file", Unit::Mebi.show(computed), how);
        return Ok(computed);
    };
    let value = u64::try_from(given).ok().filter(|mib| *mib > 0);
    let value = value.ok_or_else(|| RenderError::invalid("spec.windows.pageFileMiB", given.to_string(), "give its size in MiB, e.g. 8192"))?;
    if let Some(disk) = facts.system_disk_gib.filter(|gib| value > (gib << 10) / 2) {
        let remedy = format!(
            "the system disk has {}Mi, and Windows, images and pods need most of it: give at most half, or a larger spec.systemDisk for the machine",
            disk << 10
        );
        return Err(RenderError::invalid("spec.windows.pageFileMiB", given.to_string(), remedy));
    }
    sheet.note("page file", Unit::Mebi.show(value), format!("given by spec.windows.pageFileMiB; computed: {computed}Mi"));
    Ok(value)
}

/// Computes the memory for Windows, Defender and system services, which need more on larger machines.
fn system_memory(memory: u64) -> Computed {
    let sum = 2048 + memory / 25;
    (sum.clamp(2048, 6144), format!("2048Mi + 4% of {memory}Mi = {sum}Mi, at most 6144Mi"))
}

fn system_cpu(cpus: u32) -> Computed {
    let milli = if cpus <= 2 { 250 } else { 500 };
    (milli, format!("250m up to 2 processors, else 500m; there are {cpus}"))
}

/// Computes the memory for kubelet and containerd, and about 12 MiB of shim and console host per pod. CNI and kube-proxy run as HostProcess
/// pods and count as pods.
fn kube_memory(pods: u64) -> Computed {
    let shims = pods * 12_288 / 1000;
    (256 + shims, format!("256Mi + 12.288Mi x {pods} pods = 256Mi + {shims}Mi"))
}

/// Computes the CPU for the node's programs with the same steps as AKS.
fn kube_cpu(cpus: u32) -> Computed {
    let milli = match cpus {
        0..=1 => 60,
        2..=3 => 100,
        4..=7 => 140,
        8..=15 => 180,
        16..=31 => 260,
        32..=63 => 420,
        _ => 740,
    };
    (milli, format!("steps 1: 60m, 2: 100m, 4: 140m, 8: 180m, 16: 260m, 32: 420m, 64: 740m; there are {cpus}"))
}

/// Computes the eviction threshold. Since 1.31 the kubelet measures commit: the limit (memory and page file) minus the committed memory.
fn eviction(profile: ReserveProfile, memory: u64, page_file: u64) -> Computed {
    let share = memory * 3 / 100;
    let standard = share.max(500);
    let how = format!("3% of {memory}Mi = {share}Mi, at least 500Mi");
    match profile {
        ReserveProfile::Standard => (standard, how),
        ReserveProfile::Safe => {
            let half = page_file / 2;
            (standard + half, format!("{how}; profile Safe: + half of the page file = {half}Mi"))
        }
    }
}

/// Checks that the reserves leave room: a kubelet whose reserves exceed the machine does not start. Notes the rest, and warns if it is small.
fn fits(facts: Machine<'_>, reserves: &Reserves, sheet: &mut Sheet) -> Result<Option<String>, RenderError> {
    let (system, kube) = (reserves.system, reserves.kube);
    let kept = system.memory_mib.saturating_add(kube.memory_mib).saturating_add(reserves.eviction_mib);
    if let Some(memory) = facts.memory_mib.filter(|memory| kept >= *memory) {
        let remedy = format!(
            "Windows ({}Mi), the node's own programs ({}Mi) and the eviction threshold ({}Mi) need {kept}Mi: give the machine more memory, or lower spec.kubelet.maxPods or the reserves",
            system.memory_mib, kube.memory_mib, reserves.eviction_mib
        );
        return Err(RenderError::invalid("spec.memory of the machine", format!("{memory}Mi"), remedy));
    }
    let milli = system.milli_cpu.saturating_add(kube.milli_cpu);
    if let Some(cpus) = facts.cpus.filter(|cpus| milli >= u64::from(*cpus) * 1000) {
        let remedy =
            format!("the reserves need {milli}m: give the machine more processors, or lower spec.kubelet.systemReserved.cpu and kubeReserved.cpu");
        return Err(RenderError::invalid("spec.cpus of the machine", cpus.to_string(), remedy));
    }
    let ephemeral = system.ephemeral_mib.saturating_add(kube.ephemeral_mib);
    if let Some(disk) = facts.system_disk_gib.filter(|gib| ephemeral.saturating_add(reserves.page_file_mib) >= gib << 10) {
        let remedy = format!(
            "the reserves ({ephemeral}Mi) and the page file ({}Mi) do not fit: give the machine a larger disk, or lower the ephemeralStorage of spec.kubelet.systemReserved and kubeReserved",
            reserves.page_file_mib
        );
        return Err(RenderError::invalid("spec.systemDisk of the machine", format!("{disk}Gi"), remedy));
    }
    if let Some(cpus) = facts.cpus {
        let all = u64::from(cpus) * 1000;
        sheet.note("allocatable cpu", Unit::Milli.show(all - milli), format!("{all}m - {}m - {}m", system.milli_cpu, kube.milli_cpu));
    }
    let Some(memory) = facts.memory_mib else { return Ok(None) };
    let left = memory - kept;
    let how = format!("{memory}Mi - {}Mi - {}Mi - {}Mi", system.memory_mib, kube.memory_mib, reserves.eviction_mib);
    sheet.note("allocatable memory", Unit::Mebi.show(left), how);
    let little = left < memory / 2;
    Ok(little.then(|| {
        format!("less than half of the memory is left for pods ({left}Mi of {memory}Mi): lower spec.kubelet.maxPods (now {}; each pod costs 12Mi), or give the machine more memory", reserves.max_pods)
    }))
}

/// Returns the arithmetic, one line per amount.
pub fn explain(facts: &BootstrapFacts, reserves: &Reserves) -> String {
    let known = |value: Option<String>, what: &str| value.unwrap_or_else(|| format!("{what} not known"));
    let mut text = format!(
        "\nReserves of {}: {}, {}, {}, profile {:?}\n",
        facts.machine_name,
        known(facts.cpus.map(|cpus| format!("{cpus} processors")), "processors"),
        known(facts.memory_mib.map(|mib| format!("{mib}Mi of memory")), "memory"),
        known(facts.system_disk_gib.map(|gib| format!("system disk of {gib}Gi")), "size of the system disk"),
        facts.spec.kubelet.reserve_profile.unwrap_or_default(),
    );
    for Term { name, value, how } in &reserves.terms {
        // Writing to a String does not fail.
        let _ = writeln!(text, "    {name:<32} {value:>8}  {how}");
    }
    if let Some(warning) = &reserves.warning {
        let _ = writeln!(text, "    warning: {warning}");
    }
    text
}

/// Returns the capacity of a machine as quantities, for cluster-autoscaler. Without the size of its disk, the disk size of the image is unknown.
/// `pods_per_node`: the number of pods that can have an address on a node of its cluster, if known.
pub fn capacity(machine: &WindowsMachineSpec, bootstrap: &WindowsBootstrapConfigSpec, pods_per_node: Option<u64>) -> BTreeMap<String, String> {
    let disk = machine.system_disk.clone();
    let size = Machine {
        spec: bootstrap,
        cpus: u32::try_from(machine.cpus).ok(),
        memory_mib: mebibytes(&machine.memory).ok(),
        system_disk_gib: disk.as_deref().and_then(|disk| mebibytes(disk).ok()).map(|mib| mib >> 10),
        pods_per_node,
    };
    let pods = reserves_of(size).ok().map(|reserves| reserves.max_pods.to_string());
    let all = [("cpu", Some(machine.cpus.to_string())), ("memory", Some(machine.memory.clone())), ("pods", pods), ("ephemeral-storage", disk)];
    all.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?))).collect()
}

#[cfg(test)]
mod tests;
