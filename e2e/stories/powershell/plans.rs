//! Rendered payloads are carried to their end, restarts included, and the machine is compared with the plan.

use super::machine::{self, NETWORKS};
use super::payload::{self, ALL, FULL_2022, Kind, PLAIN, UNATTEND};
use super::{Scratch, carry, finish, judge, reports, shell, tail};
use crate::world::step;

fn end(kind: Kind) {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip(kind.name, &lacks);
    }
    let scratch = Scratch::new("plan");
    let machine = finish(kind, scratch.path());
    let reports = reports(&machine);
    step(format!("{}: {} reports, {} starts", kind.name, reports.len(), machine.boots));
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn plain_plan_finishes() {
    end(PLAIN);
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn full_plan_finishes() {
    end(FULL_2022);
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn unattend_plan_finishes() {
    end(UNATTEND);
}

/// The other releases and channels, with `CAPW_POWERSHELL=all`.
#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn every_other_plan_finishes() {
    if super::shell::is_thorough() {
        ALL.iter().filter(|kind| ![PLAIN, FULL_2022, UNATTEND].contains(kind)).for_each(|kind| end(*kind));
    }
}

/// With two networks the kubelet gets the address that leads to the API server, by the routes of the machine.
#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn of_two_networks_the_kubelet_is_told_the_right_one() {
    if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("of_two_networks_the_kubelet_is_told_the_right_one", &lacks);
    }
    const SERVICE: &str = r"SYSTEM\CurrentControlSet\Services\kubelet";
    let networks = |machine: &machine::Machine| {
        let adapter = |name: &str, network: &str| {
            format!("link add {name} type veth peer name {name}-far\naddress add {network} dev {name}\nlink set {name} up\nlink set {name}-far up\n")
        };
        let route = "route add 192.0.2.0/24 via 10.9.0.1\n";
        machine.write(NETWORKS, format!("{}{}{route}", adapter("storage", "10.8.0.21/24"), adapter("nodes", "10.9.0.21/24")));
    };
    let endpoint = |files: &mut payload::Files| {
        let plan = String::from_utf8(files["node.json"].clone()).expect("text");
        files.insert("node.json".into(), plan.replace("api.example.com:6443", "192.0.2.1:6443").into_bytes());
    };
    let scratch = Scratch::new("networks");
    let (mut machine, _) = payload::start_with(PLAIN, scratch.path(), networks, endpoint);
    let last = carry(&mut machine, PLAIN);
    assert!(last.contains(" plan finished 0 "), "{last}\n{}", tail(&machine.log()));
    machine.switch_off();
    let registry = judge::Registry::of(&machine);
    let line = registry.get(SERVICE, "ImagePath").expect("a command line");
    assert!(line.trim_end_matches('"').ends_with(" --node-ip=10.9.0.21"), "{line}");
}
