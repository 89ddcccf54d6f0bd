//! One item of each kind and one of each script, for tests. A new kind that is missing here does not compile.

use crate::bootstrap::plan::{
    Access, Action, AddressFlag, Check, Direction, ExitCodes, FeatureState, Kind, Protocol, ProxyAddress, RegistryData, Script, Start, Variables,
    When,
};

/// Returns one item of each kind. A new kind cannot be forgotten: without it the match below does not compile.
pub(super) fn kinds() -> Vec<Kind> {
    let check = Check::File("f".into());
    let text = || "x".to_owned();
    let all = vec![
        Kind::Directory { paths: vec![], access: Access::Admins },
        Kind::File { path: text(), source: text(), sha256: text(), access: Access::Admins },
        Kind::Download { url: text(), path: text(), digest: text(), proxy: Some(ProxyAddress::Plain(text())) },
        Kind::Archive { path: text(), digest: text(), directory: text(), strip: 0, files: vec![] },
        Kind::Registry { key: text(), name: text(), data: RegistryData::Dword(1), restart: true },
        Kind::ServiceEnvironment { service: text(), variables: Variables::Plain(vec![text()]) },
        Kind::Environment { name: text(), value: text() },
        Kind::Feature { names: vec![], state: FeatureState::Enabled },
        Kind::Firewall {
            name: text(),
            direction: Direction::Inbound,
            action: Action::Allow,
            protocol: Protocol::Tcp,
            ports: vec![text()],
            remote: vec![text()],
        },
        Kind::Service {
            name: text(),
            command_line: text(),
            start: Start::Auto,
            depends_on: vec![text()],
            reset_seconds: 1,
            restart_delays: vec![],
            address: Some(AddressFlag { flag: text(), to: text() }),
        },
        Kind::Running { name: text(), after: vec![text()] },
        Kind::Task { name: text(), argv: vec![], every_minutes: Some(1) },
        Kind::Command {
            argv: vec![],
            raw: Some("X=1".into()),
            directory: text(),
            check: Some(check.clone()),
            exit_codes: ExitCodes { success: vec![1], restart: vec![3010] },
            undo: vec![text()],
        },
        Kind::Script(Script::Hypervisor),
        Kind::Wait { check },
        Kind::Reboot { when: When::Pending },
        Kind::Absent { paths: vec![], tasks: vec![text()] },
    ];
    for kind in &all {
        match kind {
            Kind::Directory { .. }
            | Kind::File { .. }
            | Kind::Download { .. }
            | Kind::Archive { .. }
            | Kind::Registry { .. }
            | Kind::Environment { .. }
            | Kind::Feature { .. } => {}
            Kind::Firewall { .. } | Kind::Service { .. } | Kind::Running { .. } | Kind::Task { .. } | Kind::Command { .. } => {}
            Kind::ServiceEnvironment { .. } | Kind::Script(_) | Kind::Wait { .. } | Kind::Reboot { .. } | Kind::Absent { .. } => {}
        }
    }
    all
}

/// Returns one of each script. A new script cannot be forgotten: without it the match below does not compile.
pub(super) fn named_scripts() -> Vec<Script> {
    let text = || "x".to_owned();
    let all = vec![
        Script::Identity { build: 1 },
        Script::FreeSpace { drive: 'C', gibibytes: 1 },
        Script::Clock { url: text(), within: 1 },
        Script::WinHttpProxy { server: text(), bypass: text() },
        Script::Hypervisor,
        Script::DefenderExclusions { paths: vec![text()], processes: vec![text()] },
        Script::FirewallOn,
        Script::DynamicPorts { protocol: Protocol::Tcp, start: 1, count: 1 },
        Script::ReservedPorts { protocol: Protocol::Tcp, start: 1, count: 1 },
        Script::DomainJoin { domain: text(), blob: text() },
        Script::CredentialPlugin { clsid: text() },
    ];
    for script in &all {
        match script {
            Script::Identity { .. } | Script::FreeSpace { .. } | Script::Clock { .. } | Script::WinHttpProxy { .. } => {}
            Script::Hypervisor | Script::DefenderExclusions { .. } | Script::FirewallOn | Script::DynamicPorts { .. } => {}
            Script::ReservedPorts { .. } | Script::DomainJoin { .. } | Script::CredentialPlugin { .. } => {}
        }
    }
    all
}
