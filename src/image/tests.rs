//! Checks the answer file against Microsoft's reference, and the script against the answer file.

use std::collections::BTreeMap;
use std::process::Command;

use super::answer;
use super::files::{ANSWER_NAME, SCRIPT};
use super::installation::Installation;
use crate::api::bootstrap_config::WindowsRelease;
use crate::api::machine::FirmwareType;
use crate::bootstrap::delivery::unattend::{parts, reference};
use crate::judges;

fn installation() -> Installation {
    Installation {
        release: WindowsRelease::Server2022,
        edition: "Windows Server 2022 SERVERSTANDARDCORE".into(),
        firmware: FirmwareType::Uefi,
        cloudbase_init: true,
        language: "en-US".into(),
        locale: "en-US".into(),
        time_zone: "UTC".into(),
        password: "Pa$$w0rd<&>".to_owned().into(),
        product_key: None,
    }
}

fn other() -> Installation {
    Installation {
        release: WindowsRelease::Server2025,
        edition: "Windows Server 2025 <R&D>".into(),
        firmware: FirmwareType::Bios,
        cloudbase_init: false,
        language: "de-DE".into(),
        locale: "de-CH".into(),
        time_zone: "W. Europe Standard Time".into(),
        password: "Pa$$w0rd<&>".to_owned().into(),
        product_key: Some("AAAAA-BBBBB-CCCCC-DDDDD-12345".to_owned().into()),
    }
}

/// Returns the settings by pass, component and path.
fn settings(installation: &Installation) -> BTreeMap<String, String> {
    let (settings, faults) = reference::read(&answer::answer(installation));
    assert_eq!(faults, [""; 0]);
    settings.into_iter().map(|((pass, component, path), value)| (format!("{pass} {component} {path}"), value)).collect()
}

const SETUP: &str = "windowsPE Microsoft-Windows-Setup";

#[test]
fn settings_follow_what_is_asked_for() {
    let (one, two) = (settings(&installation()), settings(&other()));
    for (name, of_one, of_two) in [
        (
            "windowsPE Microsoft-Windows-PnpCustomizationsWinPE DriverPaths/PathAndCredentials/Path",
            r"D:\viostor\2k22\amd64",
            r"D:\viostor\2k25\amd64",
        ),
        (
            "windowsPE Microsoft-Windows-PnpCustomizationsWinPE DriverPaths/PathAndCredentials[8]/Path",
            r"G:\NetKVM\2k22\amd64",
            r"G:\NetKVM\2k25\amd64",
        ),
        ("windowsPE Microsoft-Windows-International-Core-WinPE SetupUILanguage/UILanguage", "en-US", "de-DE"),
        ("oobeSystem Microsoft-Windows-International-Core UILanguage", "en-US", "de-DE"),
        ("oobeSystem Microsoft-Windows-International-Core InputLocale", "en-US", "de-CH"),
        ("specialize Microsoft-Windows-Shell-Setup TimeZone", "UTC", "W. Europe Standard Time"),
    ] {
        assert_eq!((one[name].as_str(), two[name].as_str()), (of_one, of_two), "{name}");
    }
    let (edition, key) = (format!("{SETUP} ImageInstall/OSImage/InstallFrom/MetaData/Value"), format!("{SETUP} UserData/ProductKey/Key"));
    assert_eq!((one[&edition].as_str(), two[&edition].as_str()), ("Windows Server 2022 SERVERSTANDARDCORE", "Windows Server 2025 <R&D>"));
    assert_eq!((one.get(&key), two[&key].as_str()), (None, "AAAAA-BBBBB-CCCCC-DDDDD-12345"));
}

#[test]
fn windows_is_on_the_last_partition_and_can_grow() {
    for (installation, count, last) in [(installation(), "3", "[3]"), (other(), "1", "")] {
        let settings = settings(&installation);
        let of = |end: &str| settings.keys().filter(|name| name.ends_with(end)).cloned().collect::<Vec<_>>();
        let partition = |action: &str| format!("{SETUP} DiskConfiguration/Disk/{action}Partitions/{action}Partition{last}");
        assert_eq!(of("/Type").len().to_string(), count);
        assert_eq!(settings[&format!("{SETUP} ImageInstall/OSImage/InstallTo/PartitionID")], count);
        assert_eq!(of("/Extend"), [format!("{}/Extend", partition("Create"))]);
        assert_eq!(of("/Letter"), [format!("{}/Letter", partition("Modify"))]);
    }
}

#[test]
fn the_answer_files_are_known() {
    for (name, installation) in [("uefi", installation()), ("bios", other())] {
        insta::assert_snapshot!(name, answer::answer(&installation));
    }
}

#[test]
fn setup_runs_the_script_that_lies_beside_its_answers() {
    let installation = installation();
    let files = installation.files();
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["Autounattend.xml", "install.ps1", "cloudbase-init.conf", "cloudbase-init-unattend.conf"]);
    let path = settings(&installation)["specialize Microsoft-Windows-Deployment RunSynchronous/RunSynchronousCommand/Path"].clone();
    assert!(path.ends_with(r"-File %d:\install.ps1 -Install"), "{path}");
    assert!(SCRIPT.contains("param([switch] $Install, [switch] $Start"));
    // Every file that the script reads on the CD is either written here or listed as a file that belongs there.
    let written = names.iter().map(|name| (*name).to_owned()).chain(installation.others()).collect::<Vec<_>>();
    let read: Vec<&str> = SCRIPT.split('\'').filter(|text| text.ends_with(".msi") || text.ends_with(".conf")).collect();
    assert!(read.len() > 4, "{read:?}");
    assert!(read.iter().all(|name| written.contains(&name.replace('\\', "/"))), "{read:?}, and there are {written:?}");
    assert_eq!(other().files().len(), 2);
    assert!(!other().others().iter().any(|name| name.contains("Cloudbase")));
}

#[test]
fn the_password_is_hidden_and_does_not_outlive_the_installation() {
    let given = installation();
    for (name, text) in given.files() {
        assert!(!text.contains("Pa$$w0rd"), "{name}");
        assert_eq!(text.contains(&parts::hidden("Pa$$w0rd<&>")), name == ANSWER_NAME, "{name}");
    }
    assert!(!format!("{given:?}").contains("Pa$$w0rd"));
    // Nobody is logged on, and the files that Setup keeps are removed before the image is sealed.
    assert!(!answer::answer(&given).contains("AutoLogon"));
    let at = |part: &str| SCRIPT.rfind(part).unwrap_or_else(|| panic!("{part}"));
    let order = ["    Set-RandomPassword\n", "    Remove-AnswerFile\n", "    Unregister-ScheduledTask", "'/generalize /oobe /mode:vm /quiet /quit'"];
    assert!(order.is_sorted_by_key(|part| at(part)), "the order of what seals the image");
}

/// Parses the answer file with xmllint, an independent parser, where it is installed.
#[test]
fn xmllint_takes_the_answer_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(ANSWER_NAME);
    for installation in [installation(), other()] {
        std::fs::write(&path, answer::answer(&installation)).unwrap();
        let Some(done) = judges::output(Command::new("xmllint").arg("--noout").arg(&path)) else { return };
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}
