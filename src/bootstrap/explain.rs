//! The plan as a person would write the procedure: per item what, why, how long, what happens on failure.

use super::plan::{Access, Action, Check, Direction, FeatureState, Item, Kind, Plan, ProxyAddress, RegistryData, Script, Start, Variables};

/// Text with one paragraph per item, lines of any length.
pub fn explain(plan: &Plan) -> String {
    let mut text = format!(
        "Plan for machine {} (generation {}): {} steps, at most {} minutes and {} restarts.\nEach step tests first and acts only if the test fails; after a kill or restart the plan goes on with the first step that is not true.\n",
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
        Access::Shared => "that users may read, and write below",
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

/// One sentence. Secrets are named by path only: the plan does not hold them.
fn what(kind: &Kind) -> String {
    match kind {
        Kind::Directory { paths, access: who } => format!("Make directories {}: {}", access(*who), paths.join(", ")),
        Kind::File { path, access: who, .. } => format!("Write a file {}: {path}", access(*who)),
        Kind::Download { url, path, digest, proxy } => {
            let by = match proxy {
                Some(ProxyAddress::Plain(proxy)) => format!(" by the proxy {proxy}"),
                Some(ProxyAddress::Secret { .. }) => " by the proxy of the Secret".to_owned(),
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
        Kind::Environment { name, value } => format!("Set the machine's variable {name} to {value}"),
        Kind::Feature { names, state: FeatureState::Enabled } => format!("Install the Windows features {}", names.join(", ")),
        Kind::Feature { names, state: FeatureState::Disabled } => format!("Remove the Windows features {}", names.join(", ")),
        Kind::Firewall { direction, action, protocol, ports, remote, .. } => {
            let verb = if *action == Action::Allow { "Let" } else { "Do not let" };
            let what = if ports.is_empty() { "anything".to_owned() } else { format!("{protocol:?} port {}", ports.join(", ")).to_uppercase() };
            let (way, side) = if *direction == Direction::Inbound { ("in", "from") } else { ("out", "to") };
            let remote = if remote.is_empty() { String::new() } else { format!(" {side} {}", remote.join(", ")) };
            format!("{verb} {what} {way}{remote}").replace(" PORT ", " port ")
        }
        Kind::Service { name, command_line, start, depends_on, .. } => {
            let start = if *start == Start::Auto { "started with Windows" } else { "started on demand" };
            let after = if depends_on.is_empty() { String::new() } else { format!(", after {}", depends_on.join(", ")) };
            format!("Define the service {name}, {start}{after}: {command_line}")
        }
        Kind::Running { name, after } if after.is_empty() => format!("Start the service {name}"),
        Kind::Running { name, after } => format!("Start the service {name}, again if it is older than {}", after.join(", ")),
        Kind::Task { name, argv, every_minutes: None } => format!("Run at every start, as task {name}: {}", argv.join(" ")),
        Kind::Task { name, argv, every_minutes: Some(minutes) } => format!("Run every {minutes} minutes, as task {name}: {}", argv.join(" ")),
        Kind::Command { argv, check: Some(check), .. } => format!("Unless {}, run: {}", shown(check), argv.join(" ")),
        Kind::Command { argv, check: None, .. } => format!("Run once: {}", argv.join(" ")),
        Kind::Script(script) => by_script(script),
        Kind::Wait { check } => format!("Wait until {}", shown(check)),
        Kind::Reboot { .. } => "Restart Windows if something asked for it".into(),
        Kind::Absent { paths, tasks } => {
            let tasks = if tasks.is_empty() { String::new() } else { format!("; tasks {}", tasks.join(", ")) };
            format!("Remove {}{tasks}", paths.join(", "))
        }
    }
}

fn by_script(script: &Script) -> String {
    match script {
        Script::Identity { build } => format!("Go on only on Windows Server of build {build}"),
        Script::FreeSpace { drive, gibibytes } => {
            format!("Go on only with {gibibytes} GiB free on {drive}:, after its partition has all the space there is")
        }
        Script::Clock { url, within } => format!("Wait until the clock differs by less than {within} s from that of {url}"),
        Script::WinHttpProxy { server, bypass } => format!("Let Windows itself use the proxy {server}, but not for {bypass}"),
        Script::Hypervisor => "Let the hypervisor start with Windows".into(),
        Script::DefenderExclusions { paths, processes } => {
            format!("Keep Microsoft Defender away from {}, {}", paths.join(", "), processes.join(", "))
        }
        Script::FirewallOn => "Switch the firewall on for every profile".into(),
        Script::DynamicPorts { protocol, start, count } => {
            format!("Take ports for outgoing {protocol:?} connections from {count} ports from {start} on")
        }
        Script::ReservedPorts { protocol, start, count } => format!("Keep {count} {protocol:?} ports from {start} on free"),
        Script::DomainJoin { domain, .. } => format!("Join the domain {domain} with the file that djoin /provision made"),
        Script::CredentialPlugin { clsid } => format!("Let the plug-in {clsid} fetch credentials of group managed service accounts"),
    }
}
