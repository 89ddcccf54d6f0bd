//! A stand-in for PowerShell on Wine guests, whose own does nothing. It implements only the commands with which flanneld.exe routes packets over
//! other nodes; each fails as on Windows. Read in flannel 0.28, `pkg/routing/router_windows.go`, `pkg/ip/iface_windows.go`, `pkg/powershell`.
//!
//! Routes are in `C:\hns\host-routes.json`; `powershell.log` in the same folder has a line for each command.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

const COMMANDS: [&str; 4] = ["Set-NetIPInterface", "New-NetRoute", "Get-NetRoute", "Remove-NetRoute"];

fn main() -> ExitCode {
    let Some(script) = std::env::args().next_back() else { return ExitCode::FAILURE };
    match run(Path::new(r"C:\hns"), &script) {
        Ok(Value::Null) => ExitCode::SUCCESS,
        Ok(found) => say(&found.to_string()),
        Err(why) => {
            say(&why);
            ExitCode::FAILURE
        }
    }
}

/// Prints the output of the script where its caller reads it.
#[allow(clippy::print_stdout, reason = "callers of PowerShell read what it prints")]
fn say(line: &str) -> ExitCode {
    println!("{line}");
    ExitCode::SUCCESS
}

/// Runs the script, one at a time.
fn run(root: &Path, script: &str) -> Result<Value, String> {
    let words = command(script).ok_or_else(|| format!("this stand-in has no such command: {script}"))?;
    let failed = |error: std::io::Error| error.to_string();
    let mut log = File::options().create(true).append(true).open(root.join("powershell.log")).map_err(failed)?;
    log.lock().and_then(|()| writeln!(log, "{}", words.join(" "))).map_err(failed)?;
    let file = root.join("host-routes.json");
    let mut routes = fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let said = done(&words, &mut routes)?;
    fs::write(&file, format!("{:#}\n", json!(routes))).map_err(failed)?;
    Ok(said)
}

/// The arguments of the one relevant command, extracted from flanneld's wrapper.
fn command(script: &str) -> Option<Vec<&str>> {
    let start = COMMANDS.iter().find_map(|name| script.find(name))?;
    let words = script.get(start..)?.split(['|', '}', ')']).next()?;
    Some(words.split_whitespace().collect())
}

/// Runs a command: its output as JSON, or why it fails.
fn done(words: &[&str], routes: &mut Vec<Value>) -> Result<Value, String> {
    let option = |name: &str| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1).copied());
    let index = option("-InterfaceIndex").and_then(|index| index.parse::<u32>().ok());
    let (prefix, hop) = (option("-DestinationPrefix"), option("-NextHop"));
    let is_meant = |route: &Value| {
        index.is_none_or(|index| route.get("IfIndex") == Some(&json!(index)))
            && prefix.is_none_or(|prefix| route.get("DestinationPrefix") == Some(&json!(prefix)))
            && hop.is_none_or(|hop| route.get("NextHop") == Some(&json!(hop)))
    };
    let meant: Vec<Value> = routes.iter().filter(|route| is_meant(route)).cloned().collect();
    let missing = || Err("No matching MSFT_NetRoute objects found".to_owned());
    match words.first().copied() {
        Some("New-NetRoute") if !meant.is_empty() => return Err("Instance MSFT_NetRoute already exists".to_owned()),
        Some("New-NetRoute") => routes.push(json!({"IfIndex": index, "DestinationPrefix": prefix, "NextHop": hop})),
        Some("Remove-NetRoute") if meant.is_empty() => return missing(),
        Some("Remove-NetRoute") => routes.retain(|route| !is_meant(route)),
        Some("Get-NetRoute") if meant.is_empty() && prefix.is_some() => return missing(),
        Some("Get-NetRoute") => return Ok(json!(meant)),
        _ => {}
    }
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn routes_are_made_found_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let wrapped = |command: &str| format!("$ErrorActionPreference=\"Stop\";try {{ {command} }} catch {{ Write-Host $_; os.Exit(-1) }}");
        let run = |command: &str| run(directory.path(), &wrapped(command));
        let all = || run(&wrapped("ConvertTo-Json (@(Get-NetRoute | Select-Object -Property IfIndex,DestinationPrefix,NextHop))"));
        let of = "-InterfaceIndex 2 -DestinationPrefix 10.244.0.0/24";
        let get = format!("ConvertTo-Json (@(Get-NetRoute {of} | Select-Object -Property IfIndex,DestinationPrefix,NextHop))");
        let route = json!([{"IfIndex": 2, "DestinationPrefix": "10.244.0.0/24", "NextHop": "10.0.0.11"}]);
        assert_eq!(run("Set-NetIPInterface -ifIndex 2 -AddressFamily IPv4 -Forwarding Enabled"), Ok(Value::Null));
        assert_eq!((all(), run(&get).is_err()), (Ok(json!([])), true));
        assert_eq!(run(&format!("New-NetRoute {of} -NextHop  10.0.0.11")), Ok(Value::Null));
        assert!(run(&format!("New-NetRoute {of} -NextHop  10.0.0.11")).is_err());
        assert_eq!((all(), run(&get)), (Ok(route.clone()), Ok(route)));
        assert!(run(&format!("Remove-NetRoute {of} -NextHop 10.0.0.12 -Verbose -Confirm:$false")).is_err());
        assert_eq!(run(&format!("Remove-NetRoute {of} -NextHop 10.0.0.11 -Verbose -Confirm:$false")), Ok(Value::Null));
        assert_eq!(all(), Ok(json!([])));
        assert!(run("Get-NetAdapter").is_err());
        let log = fs::read_to_string(directory.path().join("powershell.log")).unwrap();
        assert!(log.starts_with("Set-NetIPInterface -ifIndex 2 -AddressFamily IPv4 -Forwarding Enabled\n"), "{log}");
    }
}
