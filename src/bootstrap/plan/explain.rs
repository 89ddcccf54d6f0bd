//! The plan as text for people: for each item the action, the reason, the time limit, and the effect of a failure.

use super::check::Check;
use super::firewall::{Action, Direction};
use super::item::Item;
use super::kind::{Access, FeatureState, Kind, ProxyAddress, RegistryData, Start, Variables};
use super::node_plan::Plan;
use super::script::Script;

/// Returns text with one paragraph per item and lines of any length.
pub fn explain(plan: &Plan) -> String {
    let mut text = format!(
        "Plan for machine {} (generation {}): {} steps, at most {} minutes and {} restarts.\nEach step tests first and acts only if the test fails; after a kill or restart the plan continues with the first step that does not hold.\n",
        plan.machine.name,
        plan.machine.generation,
        plan.items.len(),
        plan.limits.minutes,
        plan.limits.reboots
    );
    for (number, item) in plan.items.iter().enumerate() {
        text.push_str(&format!("\n{:>2}. {} ({})\n", number + 1, what(&item.kind), item.id));
        let mut line = |label: &str, value: &str| {
            if !value.is_empty() {
                text.push_str(&format!("    {label:<9} {value}\n"));
            }
        };
        line("why", item.why.reason);
        line("see", item.why.link);
        if let Some(check) = &item.unless {
            line("unless", &shown(check));
        }
        line("time", &format!("at most {} s, {}", item.seconds, tries(item)));
        line("if not", &format!("{} {}: {}", if item.optional { "only a warning, code" } else { "code" }, item.code.number(), item.why.remedy));
    }
    text
}

fn tries(item: &Item) -> String {
    if item.attempts == 1 { "one attempt".into() } else { format!("{} attempts", item.attempts) }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Admins => "for administrators only",
        Access::Readable => "that users may read",
        Access::Shared => "that users may read, and write into subdirectories",
        Access::Inherited => "with inherited access",
    }
}

fn shown(check: &Check) -> String {
    match check {
        Check::File(path) => format!("{path} exists"),
        Check::Pipe(name) => format!("the pipe {name} exists"),
        Check::Url(url) => format!("{url} answers with 200"),
        Check::Registry { key, name, equals } => format!("{key}\\{name} is {equals}"),
        Check::RegistryValue { key, name } => format!("{key}\\{name} exists"),
        Check::RegistryKey(key) => format!("{key} exists"),
        Check::Port(port) => format!("something listens on TCP port {port}"),
        Check::Service(name) => format!("the service {name} runs"),
        Check::Succeeds(argv) => format!("{} succeeds", argv.join(" ")),
        Check::Not(check) => format!("not: {}", shown(check)),
        Check::All(checks) => checks.iter().map(shown).collect::<Vec<_>>().join(" and "),
    }
}

/// Returns one sentence about an item. Secrets appear by path only: the plan does not contain them.
fn what(kind: &Kind) -> String {
    match kind {
        Kind::Directory { paths, access: who } => format!("Create directories {}: {}", access(*who), paths.join(", ")),
        Kind::File { path, access: who, .. } => format!("Write a file {}: {path}", access(*who)),
        Kind::Download { url, path, digest, proxy } => {
            let by = match proxy {
                Some(ProxyAddress::Plain(proxy)) => format!(" through the proxy {proxy}"),
                Some(ProxyAddress::Secret { .. }) => " through the proxy from the Secret".to_owned(),
                None => String::new(),
            };
            format!("Download {url} to {path}{by}; its digest must be {digest}")
        }
        Kind::Archive { path, directory, .. } => format!("Unpack {path} into {directory}"),
        Kind::Registry { key, name, data, .. } => match data {
            RegistryData::String(text) | RegistryData::ExpandString(text) => format!("Set {key}\\{name} to {text}"),
            RegistryData::Dword(number) => format!("Set {key}\\{name} to {number}"),
            RegistryData::MultiString(texts) => format!("Set {key}\\{name} to {}", texts.join(", ")),
        },
        Kind::ServiceEnvironment { service, variables } => match variables {
            Variables::Plain(lines) => format!("Start the service {service} with {}", lines.join(" ")),
            Variables::Secret { .. } => format!("Start the service {service} with variables that hold a secret"),
        },
        Kind::Environment { name, value } => format!("Set the machine-wide variable {name} to {value}"),
        Kind::Feature { names, state: FeatureState::Enabled } => format!("Install the Windows features {}", names.join(", ")),
        Kind::Feature { names, state: FeatureState::Disabled } => format!("Remove the Windows features {}", names.join(", ")),
        Kind::Firewall { direction, action, protocol, ports, remote, .. } => {
            let verb = if *action == Action::Allow { "Allow" } else { "Block" };
            let what = if ports.is_empty() { "everything".to_owned() } else { format!("{protocol:?} port {}", ports.join(", ")).to_uppercase() };
            let (way, side) = if *direction == Direction::Inbound { ("in", "from") } else { ("out", "to") };
            let remote = if remote.is_empty() { String::new() } else { format!(" {side} {}", remote.join(", ")) };
            format!("{verb} {what} {way}{remote}").replace(" PORT ", " port ")
        }
        Kind::Service { name, command_line, start, depends_on, address, .. } => {
            let start = if *start == Start::Auto { "started with Windows" } else { "started on demand" };
            let after = if depends_on.is_empty() { String::new() } else { format!(", after {}", depends_on.join(", ")) };
            let address = address.as_ref().map_or_else(String::new, |address| {
                format!(" (with several networks also {}ADDRESS, that from which {} is reached)", address.flag, address.to)
            });
            format!("Define the service {name}, {start}{after}: {command_line}{address}")
        }
        Kind::Running { name, after } if after.is_empty() => format!("Start the service {name}"),
        Kind::Running { name, after } => format!("Start the service {name}, again if it is older than {}", after.join(", ")),
        Kind::Task { name, argv, every_minutes: None } => format!("Run at every start, as task {name}: {}", argv.join(" ")),
        Kind::Task { name, argv, every_minutes: Some(minutes) } => format!("Run every {minutes} minutes, as task {name}: {}", argv.join(" ")),
        Kind::Command { argv, check: Some(check), .. } => format!("Unless {}, run: {}", shown(check), argv.join(" ")),
        Kind::Command { argv, check: None, .. } => format!("Run once: {}", argv.join(" ")),
        Kind::Script(script) => by_script(script),
        Kind::Wait { check } => format!("Wait until {}", shown(check)),
        Kind::Reboot { .. } => "Restart Windows if an item or Windows asked for it".into(),
        Kind::Absent { paths, tasks } => {
            let tasks = if tasks.is_empty() { String::new() } else { format!("; tasks {}", tasks.join(", ")) };
            format!("Remove {}{tasks}", paths.join(", "))
        }
    }
}

fn by_script(script: &Script) -> String {
    match script {
        Script::Identity { build } => format!("Continue only on Windows Server build {build}"),
        Script::FreeSpace { drive, gibibytes } => {
            format!("Continue only with {gibibytes} GiB free on {drive}:, after extending its partition")
        }
        Script::Clock { url, within } => format!("Wait until the clock differs by less than {within} s from that of {url}"),
        Script::WinHttpProxy { server, bypass } => format!("Let Windows itself use the proxy {server}, except for {bypass}"),
        Script::Hypervisor => "Start the hypervisor with Windows".into(),
        Script::DefenderExclusions { paths, processes } => {
            format!("Exclude from Microsoft Defender: {}, {}", paths.join(", "), processes.join(", "))
        }
        Script::FirewallOn => "Switch the firewall on for every profile".into(),
        Script::DynamicPorts { protocol, start, count } => {
            format!("Use {count} ports from {start} on for outgoing {protocol:?} connections")
        }
        Script::ReservedPorts { protocol, start, count } => format!("Reserve {count} {protocol:?} ports from {start} on"),
        Script::DomainJoin { domain, .. } => format!("Join the domain {domain} with the output of djoin /provision"),
        Script::CredentialPlugin { clsid } => format!("Register the plug-in {clsid} for credentials of group managed service accounts"),
    }
}
