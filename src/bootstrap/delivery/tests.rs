//! Tests of the data that each channel carries, also with other programs as readers. The story `ways_in` uses cloudbase-init's own code.

use std::process::Command;

use super::read::iso::Image;
use super::read::{Delivered, Payload};
use super::seed::drive;
use super::user_data::ARCHIVE_FILE;
use super::{Instance, SeedImage, archive, build, config_drive};
use crate::api::bootstrap_config::{Channel, File};
use crate::api::name::VmUuid;
use crate::bootstrap::sample::{TOKEN_SECRET, facts};
use crate::bootstrap::{Bootstrap, BootstrapFacts, RenderError, render};
use crate::judges;
use crate::vm::Seed;

/// The facts of a machine, and the data in its bootstrap Secret.
struct Machine {
    facts: BootstrapFacts,
    made: Bootstrap,
}

fn machine(channel: Channel) -> Machine {
    let mut facts = facts();
    facts.spec.channel = channel;
    Machine { made: render(&facts).unwrap(), facts }
}

impl Machine {
    fn instance(&self) -> Instance<'_> {
        let answer = self.made.answer.as_ref().map(|answer| answer.as_bytes()).unwrap_or_default();
        Instance { vm: VmUuid::of("u"), host_name: self.facts.host_name.as_ref(), user_data: self.made.user_data.as_bytes(), answer }
    }
}

#[test]
fn a_guest_reads_from_every_channel_what_was_rendered() {
    for channel in Channel::ALL {
        let machine = machine(channel);
        let instance = machine.instance();
        let delivered = Delivered::of(&SeedImage::from(&build(channel, &instance))).unwrap();
        assert_eq!(delivered.channel, channel);
        assert_eq!(delivered.instance_id, instance.id().to_string());
        assert_eq!(delivered.host_name.as_deref(), Some("win-7k2fq"));
        assert_eq!(delivered.payload.plan.machine.name, machine.facts.machine_name);
        // Without a host name in the facts, another infrastructure provider decides the name.
        let nameless = Machine { made: render(&BootstrapFacts { host_name: None, ..machine.facts.clone() }).unwrap(), ..machine };
        let nameless = Instance { host_name: None, ..nameless.instance() };
        assert_eq!(Delivered::of(&SeedImage::from(&build(channel, &nameless))).unwrap().host_name, None);
    }
}

/// With script block logging, Windows keeps the text of every script, but not of files.
#[test]
fn scripts_on_drives_hold_no_secret() {
    for channel in [Channel::ConfigDrive, Channel::NoCloud, Channel::Unattend] {
        let machine = machine(channel);
        let Seed::Drive { label, mut files } = build(channel, &machine.instance()) else { panic!("{channel} is a drive") };
        for (name, file) in &files {
            let plain = if name == ARCHIVE_FILE { archive::gunzip(file).unwrap() } else { file.clone() };
            let text = String::from_utf8_lossy(&plain);
            assert_eq!(text.contains(TOKEN_SECRET), name == ARCHIVE_FILE, "{channel}: {name}");
            assert!(!text.starts_with("#ps1_sysnative") || text.len() < 25_000, "{channel}: {name} is no small loader");
        }
        let read = |files| Delivered::of(&SeedImage::from(&Seed::Drive { label, files }));
        files.insert(ARCHIVE_FILE.to_owned(), archive::gzip(b"x"));
        assert!(read(files.clone()).unwrap_err().to_string().contains("another digest"), "{channel}");
        files.remove(ARCHIVE_FILE);
        assert!(read(files).unwrap_err().to_string().contains("none beside the loader"), "{channel}");
    }
}

/// Bootstrap Secrets of other providers, and our own gzipped data, are passed on unchanged.
#[test]
fn other_user_data_stays_as_it_is() {
    let gzipped = machine(Channel::GuestInfo).made.user_data.into_bytes();
    for data in [b"#cloud-config\nhostname: x\n".to_vec(), gzipped] {
        let instance = Instance { vm: VmUuid::of("u"), host_name: None, user_data: &data, answer: &[] };
        let files = config_drive::files(&instance);
        assert_eq!(files.keys().collect::<Vec<_>>(), [config_drive::META_DATA, config_drive::USER_DATA]);
        assert_eq!(files[config_drive::USER_DATA], data);
    }
}

#[test]
fn another_machine_or_other_data_is_another_instance() {
    let id = |uid: &str, user_data: &[u8]| Instance { vm: VmUuid::of(uid), host_name: None, user_data, answer: &[] }.id();
    assert_eq!(id("a", b"1"), id("a", b"1"));
    assert_ne!(id("a", b"1"), id("a", b"2"));
    assert_ne!(id("a", b"1"), id("b", b"1"));
}

#[test]
fn a_seed_that_no_program_would_read_is_refused() {
    let machine = machine(Channel::ConfigDrive);
    let instance = machine.instance();
    let Seed::GuestInfo(values) = build(Channel::GuestInfo, &instance) else { panic!("guestinfo is no drive") };
    let with = |key: &str, value: Option<&str>| {
        let mut values = values.clone();
        values.remove(key);
        values.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        Delivered::of(&SeedImage::GuestInfo(values)).unwrap_err().to_string()
    };
    for (error, why) in [
        (with("guestinfo.userdata", None), "guestinfo.userdata: is not set"),
        (with("guestinfo.userdata", Some("!")), "not base64"),
        (with("guestinfo.metadata.encoding", None), "expected encoding base64"),
        (with("guestinfo.metadata", Some("e30=")), "no instance-id"),
        (Delivered::of(&(&drive("cidata ", config_drive::files(&instance))).into()).unwrap_err().to_string(), "no meta-data"),
        (Delivered::of(&(&drive("config2", config_drive::files(&instance))).into()).unwrap_err().to_string(), "no program looks"),
        (
            Delivered::of(&(&build(Channel::Unattend, &Instance { answer: b"<unattend/>", ..instance })).into()).unwrap_err().to_string(),
            "does not run our",
        ),
    ] {
        assert!(error.contains(why), "{error} lacks {why}");
    }
}

/// Compares the drives with the output of isoinfo, bsdtar and xorriso, where they are installed.
#[test]
fn other_programs_read_the_drives() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive.iso");
    for channel in Channel::ALL {
        let SeedImage::Drive(bytes) = SeedImage::from(&build(channel, &machine(channel).instance())) else { continue };
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
                let mut judge = Command::new(program);
                judge.current_dir(&directory).args(before).arg(&path).args(after);
                let Some(output) = judges::output(&mut judge) else { continue };
                let read = if program == "xorriso" { std::fs::read(&out).unwrap_or_default() } else { output.stdout };
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(read == image.read(&file).unwrap(), "{program} reads {file} of {channel} differently: {said}");
                let _ = std::fs::remove_file(&out);
            }
        }
        if let Some(output) = judges::output(Command::new("isoinfo").args(["-d", "-i"]).arg(&path)) {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains(&format!("Volume id: {}\n", image.label())), "{said}");
            assert!(said.contains("Joliet with UCS level 3"), "{said}");
        }
    }
}

#[test]
fn damaged_user_data_is_refused() {
    let good = String::from_utf8(render(&facts()).unwrap().user_data.into_bytes()).unwrap();
    for (bad, why) in [
        (format!("\u{feff}{good}"), "ASCII"),
        (format!("\n{good}"), "#ps1_sysnative"),
        (good.replacen("#ps1_sysnative", "#ps1_sysnativ", 1), "#ps1_sysnative"),
        (good.replacen("$archive = @'", "$archiv = @'", 1), "no archive"),
        (good.replacen("\n'@\n", "\n", 1), "does not end"),
        (good.replacen("@'\nH", "@'\n!", 1), "base64"),
        (good.replacen("@'\nH4sI", "@'\nAAAA", 1), "gzip"),
    ] {
        let error = Payload::from_user_data(bad.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{error} lacks {why}");
    }
}

/// Returns text that does not compress well.
fn noise(length: usize) -> String {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b' ' + ((state >> 40) % 95) as u8)
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn what_is_too_large_is_refused_with_its_exact_size() {
    // The range of noise in which the limit lies, and the precision of the search: large data takes long. The lower end is the room that the
    // plan leaves for a user's own files, so the test fails if it shrinks.
    for (channel, range, close, name) in [
        (Channel::ConfigDrive, 700_000..960_000, 2_000, "Kubernetes Secret, 1 MiB"),
        (Channel::NoCloud, 700_000..960_000, 2_000, "Kubernetes Secret, 1 MiB"),
        (Channel::GuestInfo, 4_000..60_000, 1, "VMware guestinfo value, 64 KiB"),
    ] {
        let with = |length: usize| {
            let mut facts = facts();
            facts.spec.channel = channel;
            facts.spec.files = vec![File { path: r"C:\noise".into(), content: Some(noise(length)), ..File::default() }];
            render(&facts)
        };
        // Finds the largest size that fits and the smallest that does not.
        let (mut fits, mut fails) = (range.start, range.end);
        while fails - fits > close {
            let middle = (fits + fails) / 2;
            match with(middle) {
                Ok(rendered) => {
                    let size = rendered.user_data.size(channel);
                    assert!(size.bytes <= size.limit);
                    fits = middle;
                }
                Err(RenderError::TooLarge { size, .. }) => {
                    assert!(size.bytes > size.limit && size.limit_name.starts_with(name));
                    fails = middle;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(fits > range.start && fails < range.end, "{fits} {fails}");
        let error = with(fails).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(channel.name()) && error.contains("spec.files"), "{error}");
    }
}
