//! What each channel carries, and that other people's programs read it. cloudbase-init's own code is the judge in the story
//! `ways_in`.

use std::process::Command;

use super::*;
use crate::bootstrap::read::{Delivered, iso::Image};
use crate::bootstrap::sample::facts;
use crate::bootstrap::{BootstrapFacts, render};

fn machine(channel: Channel) -> (BootstrapFacts, Vec<u8>) {
    let mut facts = facts();
    facts.spec.channel = channel;
    let user_data = render(&facts).unwrap().user_data.into_bytes();
    (facts, user_data)
}

fn instance<'a>(facts: &'a BootstrapFacts, user_data: &'a [u8]) -> Instance<'a> {
    Instance { vm: VmUuid::of("u"), host_name: facts.host_name.as_ref(), user_data }
}

#[test]
fn a_guest_reads_from_every_channel_what_was_rendered() {
    for channel in Channel::ALL {
        let (facts, user_data) = machine(channel);
        let instance = instance(&facts, &user_data);
        let delivered = Delivered::of(&build(channel, &instance)).unwrap();
        assert_eq!(delivered.channel, channel);
        assert_eq!(delivered.instance_id, instance.id().to_string());
        assert_eq!(delivered.host_name.as_deref(), Some("win-7k2fq"));
        assert_eq!(delivered.payload.plan.machine.name, facts.machine_name);
        // Under another infrastructure provider the name is not ours.
        let nameless = Instance { host_name: None, ..instance };
        assert_eq!(Delivered::of(&build(channel, &nameless)).unwrap().host_name, None);
    }
}

#[test]
fn another_machine_or_other_data_is_another_instance() {
    let id = |uid: &str, user_data: &[u8]| Instance { vm: VmUuid::of(uid), host_name: None, user_data }.id();
    assert_eq!(id("a", b"1"), id("a", b"1"));
    assert_ne!(id("a", b"1"), id("a", b"2"));
    assert_ne!(id("a", b"1"), id("b", b"1"));
}

#[test]
fn a_seed_that_nobody_in_windows_would_read_is_refused() {
    let (facts, user_data) = machine(Channel::ConfigDrive);
    let instance = instance(&facts, &user_data);
    let Seed::GuestInfo(values) = build(Channel::GuestInfo, &instance) else { panic!("guestinfo is no drive") };
    let with = |key: &str, value: Option<&str>| {
        let mut values = values.clone();
        values.remove(key);
        values.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        Delivered::of(&Seed::GuestInfo(values)).unwrap_err().to_string()
    };
    for (error, why) in [
        (with("guestinfo.userdata", None), "guestinfo.userdata: is not set"),
        (with("guestinfo.userdata", Some("!")), "not base64"),
        (with("guestinfo.metadata.encoding", None), "expected encoding base64"),
        (with("guestinfo.metadata", Some("e30=")), "no instance-id"),
        (Delivered::of(&drive("cidata ", config_drive::files(&instance))).unwrap_err().to_string(), "no meta-data"),
        (Delivered::of(&drive("config2", config_drive::files(&instance))).unwrap_err().to_string(), "nobody looks"),
    ] {
        assert!(error.contains(why), "{error} lacks {why}");
    }
}

/// Labels, files and bytes as isoinfo, bsdtar and xorriso see them, where they are installed.
#[test]
fn other_programs_read_the_drives() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.iso");
    let mut missing = Vec::new();
    for channel in [Channel::ConfigDrive, Channel::NoCloud] {
        let (facts, user_data) = machine(channel);
        let Seed::Drive(bytes) = build(channel, &instance(&facts, &user_data)) else { panic!("{channel} is a drive") };
        std::fs::write(&path, &bytes).unwrap();
        let image = Image::open(&bytes).unwrap();
        for file in image.files().unwrap() {
            let out = directory.path().join("out");
            let joliet = format!("/{file};1");
            let rooted = format!("/{file}");
            for (program, before, after) in [
                ("isoinfo", &["-J", "-x", &joliet, "-i"][..], &[][..]),
                ("bsdtar", &["-xOf"], &[file.as_str()]),
                ("xorriso", &["-osirrox", "on", "-indev"], &["-extract", &rooted, "out"]),
            ] {
                let Ok(output) = Command::new(program).current_dir(&directory).args(before).arg(&path).args(after).output() else {
                    missing.push(program);
                    continue;
                };
                let read = if program == "xorriso" { std::fs::read(&out).unwrap_or_default() } else { output.stdout };
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(read == image.read(&file).unwrap(), "{program} reads {file} of {channel} otherwise: {said}");
                let _ = std::fs::remove_file(&out);
            }
        }
        if let Ok(output) = Command::new("isoinfo").args(["-d", "-i"]).arg(&path).output() {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains(&format!("Volume id: {}\n", image.label())), "{said}");
            assert!(said.contains("Joliet with UCS level 3"), "{said}");
        }
    }
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        println!("not installed, so the drives were not read with them: {}", missing.join(", "));
    }
}
