//! Checks the answer file against Microsoft's reference for each of its settings.

use std::process::Command;

use crate::api::bootstrap_config::{SecretKeyRef, Unattend, ValueSource};
use crate::bootstrap::delivery::unattend::*;
use crate::bootstrap::render;
use crate::bootstrap::sample::facts;
use crate::judges;

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

#[test]
fn every_setting_is_known_in_its_pass() {
    for facts in [unattended(), password_from("Pa$$w0rd<&>"), key_from("AAAAA-BBBBB-CCCCC-DDDDD-12345"), {
        let mut facts = unattended();
        facts.host_name = None;
        facts.spec.unattend = Some(Unattend { time_zone: "W. Europe Standard Time".into(), locale: "de-DE".into(), ..Default::default() });
        facts
    }] {
        assert_eq!(reference::read(&text(&facts)).1, [""; 0]);
    }
}

#[test]
fn settings_follow_the_spec() {
    let (found, _) = reference::read(&text(&unattended()));
    let of = |pass: &str, component: &str, path: &str| found.get(&(pass.into(), component.into(), path.into())).cloned();
    assert_eq!(of("specialize", "Microsoft-Windows-Shell-Setup", "ComputerName").as_deref(), Some("win-7k2fq"));
    assert_eq!(of("specialize", "Microsoft-Windows-Shell-Setup", "TimeZone").as_deref(), Some("UTC"));
    assert_eq!(of("oobeSystem", "Microsoft-Windows-International-Core", "UILanguage").as_deref(), Some("en-US"));
    let path = of("specialize", "Microsoft-Windows-Deployment", "RunSynchronous/RunSynchronousCommand/Path").unwrap();
    assert!(path.ends_with("-Install -DisableAdministrator"), "the password is unknown, so the account must be disabled");
    insta::assert_snapshot!("unattend", text(&unattended()));
}

#[test]
fn passwords_are_written_as_windows_writes_them() {
    // The expected text is the example in the reference, microsoft-windows-shell-setup-useraccounts-administratorpassword-value.
    assert_eq!(parts::hidden("pw"), "cAB3AEEAZABtAGkAbgBpAHMAdAByAGEAdABvAHIAUABhAHMAcwB3AG8AcgBkAA==");
    let given = text(&password_from("Pa$$w0rd<&>\n"));
    assert!(given.contains(&parts::hidden("Pa$$w0rd<&>")) && !given.contains("-DisableAdministrator"));
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

/// Parses the answer file with xmllint, an independent parser, where it is installed.
#[test]
fn xmllint_takes_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("unattend.xml");
    for facts in [unattended(), password_from("Pa$$w0rd<&>")] {
        std::fs::write(&path, text(&facts)).unwrap();
        let Some(done) = judges::output(Command::new("xmllint").arg("--noout").arg(&path)) else { return };
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}
