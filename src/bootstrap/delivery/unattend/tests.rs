//! The answer file against Microsoft's reference for each of its settings.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use roxmltree::{Document, Node};

use super::*;
use crate::api::bootstrap_config::{SecretKeyRef, Unattend, ValueSource};
use crate::bootstrap::render;
use crate::bootstrap::sample::facts;

const SETTINGS: &str = "urn:schemas-microsoft-com:unattend";
const ACTIONS: &str = "http://schemas.microsoft.com/WMIConfig/2002/State";

/// Every setting that we use: component, path below it, and the passes in which Windows reads it ("Valid Configuration Passes" in the
/// Unattended Windows Setup Reference).
const REFERENCE: [(&str, &str, &[&str]); 17] = [
    ("Microsoft-Windows-Shell-Setup", "ComputerName", &["offlineServicing", "specialize"]),
    ("Microsoft-Windows-Shell-Setup", "ProductKey", &["specialize"]),
    ("Microsoft-Windows-Shell-Setup", "TimeZone", &["specialize", "auditSystem", "oobeSystem"]),
    ("Microsoft-Windows-Shell-Setup", "OOBE/HideEULAPage", &["oobeSystem"]),
    ("Microsoft-Windows-Shell-Setup", "OOBE/HideLocalAccountScreen", &["oobeSystem"]),
    ("Microsoft-Windows-Shell-Setup", "OOBE/ProtectYourPC", &["oobeSystem"]),
    ("Microsoft-Windows-Shell-Setup", "UserAccounts/AdministratorPassword/Value", &["auditSystem", "oobeSystem"]),
    ("Microsoft-Windows-Shell-Setup", "UserAccounts/AdministratorPassword/PlainText", &["auditSystem", "oobeSystem"]),
    ("Microsoft-Windows-Security-SPP-UX", "SkipAutoActivation", &["specialize"]),
    ("Microsoft-Windows-Deployment", "RunSynchronous/RunSynchronousCommand/Order", &["auditUser", "specialize"]),
    ("Microsoft-Windows-Deployment", "RunSynchronous/RunSynchronousCommand/Description", &["auditUser", "specialize"]),
    ("Microsoft-Windows-Deployment", "RunSynchronous/RunSynchronousCommand/Path", &["auditUser", "specialize"]),
    ("Microsoft-Windows-Deployment", "RunSynchronous/RunSynchronousCommand/WillReboot", &["auditUser", "specialize"]),
    ("Microsoft-Windows-International-Core", "InputLocale", &["specialize", "oobeSystem"]),
    ("Microsoft-Windows-International-Core", "SystemLocale", &["specialize", "oobeSystem"]),
    ("Microsoft-Windows-International-Core", "UILanguage", &["specialize", "oobeSystem"]),
    ("Microsoft-Windows-International-Core", "UserLocale", &["specialize", "oobeSystem"]),
];

fn unattended() -> BootstrapFacts {
    let mut facts = facts();
    facts.spec.channel = Channel::Unattend;
    facts
}

fn with(value: &str, set: fn(&mut Unattend, ValueSource)) -> BootstrapFacts {
    let mut facts = unattended();
    let reference = SecretKeyRef { name: "windows".into(), key: "value".into() };
    facts.secrets.insert(reference.clone(), value.as_bytes().to_vec());
    set(facts.spec.unattend.get_or_insert_default(), ValueSource { secret_key_ref: reference });
    facts
}

fn password_from(value: &str) -> BootstrapFacts {
    with(value, |unattend, from| unattend.administrator_password_from = Some(from))
}

fn key_from(value: &str) -> BootstrapFacts {
    with(value, |unattend, from| unattend.product_key_from = Some(from))
}

fn text(facts: &BootstrapFacts) -> String {
    String::from_utf8(answer(facts).unwrap().unwrap().as_bytes().to_vec()).unwrap()
}

/// Settings by pass, component and path.
fn settings(xml: &str) -> BTreeMap<(String, String, String), String> {
    fn leaves(node: Node<'_, '_>, path: &str, found: &mut Vec<(String, String)>) {
        let children: Vec<Node<'_, '_>> = node.children().filter(Node::is_element).collect();
        for child in &children {
            assert_eq!(child.tag_name().namespace(), Some(SETTINGS));
            let path = if path.is_empty() { child.tag_name().name().to_owned() } else { format!("{path}/{}", child.tag_name().name()) };
            leaves(*child, &path, found);
        }
        if children.is_empty() {
            found.push((path.to_owned(), node.text().unwrap_or_default().to_owned()));
        }
    }
    let document = Document::parse(xml).unwrap();
    let root = document.root_element();
    assert_eq!((root.tag_name().namespace(), root.tag_name().name()), (Some(SETTINGS), "unattend"));
    let mut all = BTreeMap::new();
    for settings in root.children().filter(Node::is_element) {
        assert_eq!(settings.tag_name().name(), "settings");
        for component in settings.children().filter(Node::is_element) {
            assert_eq!(component.tag_name().name(), "component");
            // The identity of a component on every 64-bit edition.
            for (name, value) in
                [("processorArchitecture", "amd64"), ("publicKeyToken", "31bf3856ad364e35"), ("language", "neutral"), ("versionScope", "nonSxS")]
            {
                assert_eq!(component.attribute(name), Some(value));
            }
            let mut found = Vec::new();
            leaves(component, "", &mut found);
            for (path, value) in found {
                let key = (settings.attribute("pass").unwrap().to_owned(), component.attribute("name").unwrap().to_owned(), path);
                assert_eq!(all.insert(key.clone(), value), None, "{key:?} is given twice");
            }
        }
    }
    all
}

#[test]
fn every_setting_is_known_in_its_pass() {
    for facts in [unattended(), password_from("Pa$$w0rd<&>"), key_from("AAAAA-BBBBB-CCCCC-DDDDD-12345"), {
        let mut facts = unattended();
        facts.host_name = None;
        facts.spec.unattend = Some(Unattend { time_zone: "W. Europe Standard Time".into(), locale: "de-DE".into(), ..Default::default() });
        facts
    }] {
        for ((pass, component, path), value) in settings(&text(&facts)) {
            let known = REFERENCE.iter().find(|(name, setting, _)| *name == component && *setting == path);
            let (_, _, passes) = known.unwrap_or_else(|| panic!("{component} has no setting {path}"));
            assert!(passes.contains(&pass.as_str()), "{component} {path} is not read in {pass}");
            assert!(!value.is_empty(), "{path} is empty, which Setup takes for an error");
        }
    }
}

#[test]
fn settings_follow_the_spec() {
    let found = settings(&text(&unattended()));
    let of = |pass: &str, component: &str, path: &str| found.get(&(pass.into(), component.into(), path.into())).cloned();
    assert_eq!(of("specialize", "Microsoft-Windows-Shell-Setup", "ComputerName").as_deref(), Some("win-7k2fq"));
    assert_eq!(of("specialize", "Microsoft-Windows-Shell-Setup", "TimeZone").as_deref(), Some("UTC"));
    assert_eq!(of("oobeSystem", "Microsoft-Windows-International-Core", "UILanguage").as_deref(), Some("en-US"));
    let path = of("specialize", "Microsoft-Windows-Deployment", "RunSynchronous/RunSynchronousCommand/Path").unwrap();
    assert!(path.len() <= 259, "{} characters", path.len());
    assert!(path.ends_with("-Install -DisableAdministrator"), "the password is unknown, so the account must be disabled");
    let xml = text(&unattended());
    let document = Document::parse(&xml).unwrap();
    let command = document.descendants().find(|node| node.has_tag_name((SETTINGS, "RunSynchronousCommand"))).unwrap();
    assert_eq!(command.attribute((ACTIONS, "action")), Some("add"));
    insta::assert_snapshot!("unattend", text(&unattended()));
}

#[test]
fn passwords_are_written_as_windows_writes_them() {
    // The example in the reference, microsoft-windows-shell-setup-useraccounts-administratorpassword-value.
    assert_eq!(hidden("pw"), "cAB3AEEAZABtAGkAbgBpAHMAdAByAGEAdABvAHIAUABhAHMAcwB3AG8AcgBkAA==");
    let given = text(&password_from("Pa$$w0rd<&>\n"));
    assert!(given.contains(&hidden("Pa$$w0rd<&>")) && !given.contains("-DisableAdministrator"));
    // A random password differs for each machine and token, and has three kinds of characters.
    let mut other = unattended();
    other.machine_uid = "other".into();
    assert_ne!(random(&unattended()), random(&other));
    assert!(password(&random(&other)).is_ok());
}

#[test]
fn values_that_setup_would_refuse_are_refused_and_not_shown() {
    for (facts, field) in [
        (password_from("short"), "spec.unattend.administratorPasswordFrom"),
        (password_from("two lines\nof it"), "spec.unattend.administratorPasswordFrom"),
        (key_from("AAAAA-BBBBB-CCCCC-DDDDD"), "spec.unattend.productKeyFrom"),
        (key_from("aaaaa-BBBBB-CCCCC-DDDDD-12345"), "spec.unattend.productKeyFrom"),
    ] {
        let error = render(&facts).unwrap_err().to_string();
        assert!(error.contains(field) && error.contains("(not shown)"), "{error}");
    }
    let mut missing = password_from("Pa$$w0rd");
    missing.secrets = Default::default();
    assert!(render(&missing).unwrap_err().to_string().contains("windows/value"));
}

/// An independent parser, where it is installed.
#[test]
fn xmllint_takes_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("unattend.xml");
    for facts in [unattended(), password_from("Pa$$w0rd<&>")] {
        std::fs::write(&path, text(&facts)).unwrap();
        match Command::new("xmllint").arg("--noout").arg(&path).stderr(Stdio::piped()).output() {
            Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
            Err(_) => println!("xmllint is not installed, so the answer file was not read with it"),
        }
    }
}
