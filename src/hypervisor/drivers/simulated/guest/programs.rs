//! The programs that the runner runs to apply an item, and their time limits: the same programs that items.ps1, programs.ps1 and
//! scripts.ps1 give to `Invoke-Program`.

use crate::bootstrap::plan::{FeatureState, Item, Kind, Protocol, Script};

/// The time limit in seconds for programs of Windows that only set something.
const SHORT: u32 = 60;

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub argv: Vec<String>,
    /// The most seconds that the program may take.
    pub seconds: u32,
    /// The exit codes that mean success.
    pub good: Vec<i32>,
}

/// The programs of an item in their order. The first failure ends the sequence.
pub fn of(item: &Item) -> Vec<Program> {
    let program = |argv: &[&str], seconds: u32| Program { argv: argv.iter().map(|&word| word.to_owned()).collect(), seconds, good: vec![0] };
    match &item.kind {
        Kind::Feature { names, state } => {
            let dism = |name: &String| {
                let options: &[&str] = if *state == FeatureState::Enabled { &["/Enable-Feature", "/All"] } else { &["/Disable-Feature"] };
                let feature = format!("/FeatureName:{name}");
                let words = [&["dism.exe", "/Online"], options, &[&feature, "/NoRestart", "/Quiet"]].concat();
                Program { good: vec![0, 3010], ..program(&words, item.seconds) }
            };
            names.iter().map(dism).collect()
        }
        Kind::Archive { path, directory, strip, .. } => {
            vec![program(
                &[r"C:\Windows\System32\tar.exe", "-x", "-f", path, "-C", directory, "--strip-components", &strip.to_string()],
                item.seconds,
            )]
        }
        Kind::Service { name, reset_seconds, restart_delays, .. } => {
            let actions: Vec<String> = restart_delays.iter().map(|delay| format!("restart/{delay}")).collect();
            vec![
                program(&["sc.exe", "failure", name, "reset=", &reset_seconds.to_string(), "actions=", &actions.join("/")], item.seconds),
                program(&["sc.exe", "failureflag", name, "1"], item.seconds),
            ]
        }
        Kind::Command { argv, exit_codes, .. } => {
            let good = exit_codes.success.iter().chain(&exit_codes.restart).copied().collect();
            vec![Program { argv: argv.clone(), seconds: item.seconds, good }]
        }
        Kind::Script(script) => match script {
            Script::WinHttpProxy { server, bypass } => {
                let (server, bypass) = (format!("proxy-server={server}"), format!("bypass-list={bypass}"));
                vec![program(&["netsh.exe", "winhttp", "set", "proxy", &server, &bypass], SHORT)]
            }
            Script::Hypervisor => vec![program(&["bcdedit.exe", "/set", "{current}", "hypervisorlaunchtype", "auto"], SHORT)],
            Script::DynamicPorts { protocol, start, count } => {
                let [protocol, start, count] = ports(*protocol, *start, *count);
                vec![program(&["netsh.exe", "int", "ipv4", "set", "dynamicportrange", &protocol, &start, &count], SHORT)]
            }
            Script::ReservedPorts { protocol, start, count } => {
                let [protocol, start, count] = ports(*protocol, *start, *count);
                let words = ["netsh.exe", "int", "ipv4", "add", "excludedportrange", &protocol, &start, &count, "store=persistent"];
                vec![program(&words, SHORT)]
            }
            Script::DomainJoin { blob, .. } => {
                let words = ["djoin.exe", "/requestodj", "/loadfile", blob, "/windowspath", r"C:\Windows", "/localos"];
                vec![program(&words, item.seconds)]
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn ports(protocol: Protocol, start: u16, count: u16) -> [String; 3] {
    let name = match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Any => "ANY",
    };
    [format!("protocol={name}"), format!("startport={start}"), format!("numberofports={count}")]
}
