//! The plan as a person would write the procedure: per item what, why, how long, what happens on failure.

use super::plan::{Access, Check, Item, Kind, Plan, RegistryData, Start};

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
        line("if not", &format!("code {}: {}", item.code, item.why.remedy));
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
        Access::Inherited => "with inherited access",
    }
}

fn shown(check: &Check) -> String {
    match check {
        Check::File(path) => format!("{path} exists"),
        Check::Pipe(name) => format!("the pipe {name} exists"),
        Check::Url(url) => format!("{url} answers with 200"),
        Check::Registry { key, name, equals } => format!("{key}\\{name} is {equals}"),
    }
}

/// One sentence. Secrets are named by path only: the plan does not hold them.
fn what(kind: &Kind) -> String {
    match kind {
        Kind::Directory { paths, access: who } => format!("Make directories {}: {}", access(*who), paths.join(", ")),
        Kind::File { path, access: who, .. } => format!("Write a file {}: {path}", access(*who)),
        Kind::Registry { key, name, data } => match data {
            RegistryData::String(text) => format!("Set {key}\\{name} to {text}"),
            RegistryData::Dword(number) => format!("Set {key}\\{name} to {number}"),
        },
        Kind::Environment { name, value } => format!("Set the machine's variable {name} to {value}"),
        Kind::Feature { names } => format!("Install the Windows features {}", names.join(", ")),
        Kind::Firewall { protocol, port, .. } => format!("Let {protocol:?} port {port} in"),
        Kind::Service { name, command_line, start, depends_on, .. } => {
            let start = if *start == Start::Auto { "started with Windows" } else { "started on demand" };
            let after = if depends_on.is_empty() { String::new() } else { format!(", after {}", depends_on.join(", ")) };
            format!("Define the service {name}, {start}{after}: {command_line}")
        }
        Kind::Running { name, after } if after.is_empty() => format!("Start the service {name}"),
        Kind::Running { name, after } => format!("Start the service {name}, again if it is older than {}", after.join(", ")),
        Kind::Task { name, argv } => format!("Run at every start, as task {name}: {}", argv.join(" ")),
        Kind::Command { argv, check, .. } => format!("Unless {}, run: {}", shown(check), argv.join(" ")),
        Kind::Wait { check } => format!("Wait until {}", shown(check)),
        Kind::Reboot { .. } => "Restart Windows if something asked for it".into(),
        Kind::Absent { paths, tasks } => {
            let tasks = if tasks.is_empty() { String::new() } else { format!("; tasks {}", tasks.join(", ")) };
            format!("Remove {}{tasks}", paths.join(", "))
        }
    }
}
