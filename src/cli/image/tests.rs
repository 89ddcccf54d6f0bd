//! Tests of `capw image autounattend` as a person calls it.

use clap::Parser;

use crate::cli::image::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    image: Autounattend,
}

fn parsed(arguments: &[&str]) -> Result<Autounattend, String> {
    let line = Line::try_parse_from(["autounattend", "--release", "2022"].iter().chain(arguments));
    line.map(|line| line.image).map_err(|e| e.to_string())
}

fn installation(arguments: &[&str]) -> Result<Installation, String> {
    parsed(&[&["-o", "unused"][..], arguments].concat())?.installation()
}

#[test]
fn files_are_written_and_what_they_need_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("files");
    let answers = output.join("Autounattend.xml");
    fs::create_dir_all(&output).unwrap();
    // Others may read the file until it contains a password.
    fs::write(&answers, "old").unwrap();
    fs::write(output.join("CloudbaseInitSetup_x64.msi"), "").unwrap();
    let said = parsed(&["--output", output.to_str().unwrap()]).unwrap().run().unwrap();
    for line in [
        "files/Autounattend.xml: written",
        "files/install.ps1: written",
        "files/cloudbase-init.conf: written",
        "files/viostor/2k22/amd64: belongs on the CD too",
        "files/guest-agent/qemu-ga-x86_64.msi: belongs on the CD too",
        "files/CloudbaseInitSetup_x64.msi: is there",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    assert_eq!(fs::metadata(&answers).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(answers).unwrap().contains("<Value>Windows Server 2022 SERVERSTANDARDCORE</Value>"));

    let directory = tempfile::tempdir().unwrap();
    let said = parsed(&["--delivery", "windows-setup", "-o", directory.path().to_str().unwrap()]).unwrap().run().unwrap();
    assert!(!said.to_lowercase().contains("cloudbase"), "{said}");
}

#[test]
fn secrets_come_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (password, key) = (file("password", "Pa$$w0rd\r\n"), file("key", "AAAAA-BBBBB-CCCCC-DDDDD-12345\n"));
    let given = installation(&["--password-file", &password, "--product-key-file", &key]).unwrap();
    assert_eq!(given.password.expose_secret(), "Pa$$w0rd");
    assert_eq!(given.product_key.unwrap().expose_secret(), "AAAAA-BBBBB-CCCCC-DDDDD-12345");
    // The password differs each time, and Setup accepts it.
    let (one, two) = (installation(&[]).unwrap().password, installation(&[]).unwrap().password);
    assert!(one.expose_secret() != two.expose_secret() && parts::is_password(one.expose_secret()));

    let (short, lines, missing) = (file("short", "hunter2"), file("lines", "one line\nand another"), format!("{password}-not"));
    for (flag, path, said) in [
        ("--password-file", &short, "(not shown) is not valid: expected 8 to 127 characters"),
        ("--password-file", &lines, "in one line"),
        ("--password-file", &missing, "No such file"),
        ("--product-key-file", &short, "(not shown) is not valid: expected five groups"),
    ] {
        let error = installation(&[flag, path]).unwrap_err();
        assert!(error.starts_with(&format!("{flag} {path}: ")) && error.contains(said), "{error}");
        assert!(!error.contains("hunter2") && !error.contains("another"), "{error}");
    }
}

#[test]
fn what_setup_would_not_take_is_refused_by_flag_value_and_remedy() {
    for (flag, value, remedy) in [
        ("--release", "2016", "possible values: 2019, 2022, 2025"),
        ("--firmware", "efi", "possible values: uefi, bios"),
        ("--delivery", "packer", "possible values: cloudbase-init, windows-setup"),
        ("--edition", " ", "`wiminfo install.wim` lists"),
        ("--language", "german", "e.g. de-DE"),
        ("--locale", "de_DE", "e.g. de-DE"),
        ("--time-zone", "Europe/Berlin", "`tzutil /l` lists"),
    ] {
        let arguments = ["autounattend", "-o", "unused", flag, value];
        let error = Line::try_parse_from(arguments).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("'{value}' for '{flag} <")) && error.contains(remedy), "{error}");
    }
}

#[test]
fn the_locale_is_the_language_unless_it_is_given() {
    let installation = |arguments: &[&str]| installation(arguments).unwrap();
    assert_eq!(installation(&["--language", "de-DE"]).locale, "de-DE");
    assert_eq!(installation(&["--language", "de-DE", "--locale", "de-CH"]).locale, "de-CH");
    assert_eq!(installation(&["--edition", "Windows Server 2022 SERVERDATACENTER"]).edition, "Windows Server 2022 SERVERDATACENTER");
}
