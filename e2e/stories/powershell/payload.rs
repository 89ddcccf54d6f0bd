//! The payloads of machines: rendered here as the operator renders them, with programs that a server of the test offers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use capw::api::bootstrap_config::{Channel, ConfigMapKeyRef, SecretKeyRef, WindowsBootstrapConfigSpec};
use capw::api::name::{HostName, VmUuid};
use capw::bootstrap::delivery::{Instance, build};
use capw::bootstrap::plan::Plan;
use capw::bootstrap::{Bootstrap, render};
use capw::vm::Seed;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sha2::{Digest, Sha256, Sha512};

use super::image;
use super::machine::{Ended, Machine, Source};
use crate::world::facts::{CA, facts};

const FULL: &str = include_str!("../../../src/bootstrap/sample-full.yaml");
/// The port of the server, on the loopback address of each machine.
const PORT: u16 = 8099;

/// The kind of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    pub release: &'static str,
    pub kubernetes: &'static str,
    /// Whether the specification sets every field, or none.
    pub full: bool,
    pub unattend: bool,
}

const fn kind(name: &'static str, release: &'static str, kubernetes: &'static str, full: bool, unattend: bool) -> Kind {
    Kind { name, release, kubernetes, full, unattend }
}

pub const PLAIN: Kind = kind("plain", "2022", "v1.36.3", false, false);
pub const FULL_2022: Kind = kind("full", "2022", "v1.36.3", true, false);
pub const UNATTEND: Kind = kind("unattend", "2022", "v1.36.3", false, true);
/// All kinds whose plans are carried to their end.
pub const ALL: [Kind; 7] = [
    PLAIN,
    FULL_2022,
    UNATTEND,
    kind("plain 2019", "2019", "v1.33.13", false, false),
    kind("full 2019", "2019", "v1.33.13", true, false),
    kind("full 2025", "2025", "v1.36.3", true, false),
    kind("full unattend", "2022", "v1.36.3", true, true),
];

/// Renders the bootstrap data of a kind.
pub fn bootstrap(kind: Kind) -> Bootstrap {
    let mut spec: WindowsBootstrapConfigSpec = if kind.full { serde_saphyr::from_str(&full()).expect("the sample") } else { Default::default() };
    if kind.kubernetes < "v1.34" {
        // The kubelet does not give tokens to credential providers yet.
        let providers = spec.kubelet.image_credential_provider.as_mut();
        providers.into_iter().flat_map(|all| &mut all.providers).for_each(|provider| provider.token_attributes = None);
    }
    spec.windows_release = serde_json::from_value(kind.release.into()).expect("a release");
    spec.channel = if kind.unattend { Channel::Unattend } else { Channel::ConfigDrive };
    let mut facts = facts(kind.kubernetes, spec);
    let mut give = |key: &str, value: &[u8]| facts.secrets.insert(SecretKeyRef { name: "windows".into(), key: key.into() }, value.to_vec());
    for (key, value) in [
        ("djoin", "provisioned"),
        ("proxy", "http://user:password@127.0.0.1:8099"),
        ("licence", "licence"),
        ("mirror-key", "-----BEGIN PRIVATE KEY-----\nYQ==\n-----END PRIVATE KEY-----"),
        ("ca.pem", CA),
        ("mirror-user", "reader"),
        ("mirror-password", "password"),
    ] {
        give(key, value.as_bytes());
    }
    facts.secrets.insert_public(ConfigMapKeyRef { name: "authorities".into(), key: "ca.crt".into() }, CA.into());
    render(&facts).unwrap_or_else(|error| panic!("{kind:?}: {error}"))
}

/// The sample with every field, with downloads from our server.
fn full() -> String {
    let files = files();
    let digest = |name: &str| files.iter().find(|(file, _)| file == name).map(|(_, bytes)| bytes).expect("a file");
    let sha256 = |name: &str| hex(&Sha256::digest(digest(name)));
    let server = format!("http://127.0.0.1:{PORT}");
    FULL.replace("https://mirror.example.com/kubernetes", &server)
        .replace("https://mirror.example.com/containerd-1.7.29-windows-amd64.tar.gz", &format!("{server}/containerd.tar.gz"))
        .replace("https://mirror.example.com/crictl-v1.36.0-windows-amd64.tar.gz", &format!("{server}/crictl.tar.gz"))
        .replacen(&format!("sha256:{}", "ab".repeat(32)), &format!("sha256:{}", sha256("kubelet.exe")), 1)
        .replacen(&format!("sha256:{}", "ab".repeat(32)), &format!("sha256:{}", sha256("containerd.tar.gz")), 1)
        .replace(&format!("sha512:{}", "ab".repeat(64)), &format!("sha512:{}", hex(&Sha512::digest(digest("crictl.tar.gz")))))
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// The files that the server offers, by the last part of the path.
fn files() -> &'static [(String, Vec<u8>)] {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let program = fs::read(image::stand_in()).expect("the stand-in");
        let containerd = archive(&[("bin/containerd.exe", &program), ("bin/containerd-shim-runhcs-v1.exe", b"shim"), ("bin/ctr.exe", b"ctr")]);
        vec![
            ("kubelet.exe".into(), program.clone()),
            ("containerd.tar.gz".into(), containerd),
            ("crictl.tar.gz".into(), archive(&[("crictl.exe", &program)])),
        ]
    })
}

/// An uncompressed ustar archive, which is what the stand-in for tar.exe reads.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in members {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000755");
        header[108..115].copy_from_slice(b"0000000");
        header[116..123].copy_from_slice(b"0000000");
        header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000000000");
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        header[263..265].copy_from_slice(b"00");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.extend_from_slice(&header);
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// Files of a payload by path.
pub type Files = BTreeMap<String, Vec<u8>>;

/// User data with changed files in its archive.
fn repacked(user_data: &[u8], change: impl FnOnce(&mut Files)) -> Vec<u8> {
    let text = std::str::from_utf8(user_data).expect("text");
    let (head, rest) = text.split_once("$archive = @'\n").expect("an archive");
    let (encoded, end) = rest.split_once("\n'@").expect("its end");
    let packed = STANDARD.decode(encoded.replace(['\r', '\n'], "")).expect("base64");
    let (mut plain, mut files) = (Vec::new(), Files::new());
    GzDecoder::new(packed.as_slice()).read_to_end(&mut plain).expect("gzip");
    let mut rest = plain.as_slice();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = std::str::from_utf8(&rest[..end]).expect("a line");
        let mut fields = line.splitn(3, ' ').skip(1);
        let (length, path) = (fields.next().expect(line).parse::<usize>().expect(line), fields.next().expect(line));
        files.insert(path.to_owned(), rest[end + 1..end + 1 + length].to_vec());
        rest = &rest[end + 1 + length..];
    }
    change(&mut files);
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for (path, bytes) in &files {
        writeln!(encoder, "{} {} {path}", hex(&Sha256::digest(bytes)), bytes.len()).expect("memory");
        encoder.write_all(bytes).expect("memory");
    }
    let encoded = STANDARD.encode(encoder.finish().expect("memory"));
    format!("{head}$archive = @'\n{encoded}\n'@{end}").into_bytes()
}

/// Attaches the drive with the bootstrap data to a machine.
fn deliver(machine: &Machine, kind: Kind, user_data: &[u8]) {
    let channel = if kind.unattend { Channel::Unattend } else { Channel::ConfigDrive };
    let name = HostName::parse("win-1").expect("a host name");
    let Seed::Drive { label, files } = build(channel, &Instance { vm: VmUuid::of("u"), host_name: Some(&name), user_data, answer: b"" }) else {
        panic!("{channel} is a drive")
    };
    for (file, content) in &files {
        machine.write(&format!(r"C:\delivered\{}", file.replace('/', "\\")), content);
    }
    // Wine takes the label of a drive from this file.
    machine.write(r"C:\delivered\.windows-label", format!("{label}\n"));
    machine.add_drive("e:", &machine.path(r"C:\delivered"));
}

/// Creates a machine with its payload and switches it on for the first time.
pub fn start(kind: Kind, directory: &Path) -> (Machine, Plan) {
    start_with(kind, directory, |_| (), |_| ())
}

/// As [`start`], but first changes the machine that is still off, and the files of its payload.
pub fn start_with(kind: Kind, directory: &Path, prepare: impl FnOnce(&Machine), change: impl FnOnce(&mut Files)) -> (Machine, Plan) {
    let bootstrap = bootstrap(kind);
    let mut machine = Machine::new(directory);
    deliver(&machine, kind, &repacked(bootstrap.user_data.as_bytes(), change));
    if kind.full {
        // The image has another kubelet than the plan downloads.
        let kubelet = r"C:\k\kubelet.exe";
        fs::remove_file(machine.path(kubelet)).expect("a link to the stand-in");
        machine.write(kubelet, "another kubelet");
    }
    if let Some(thumbprint) = thumbprint(&bootstrap.plan) {
        machine.write(r"C:\stand-in\thumbprint", thumbprint);
    }
    prepare(&machine);
    machine.boot();
    let build = match kind.release {
        "2019" => "17763",
        "2025" => "26100",
        _ => "20348",
    };
    machine.import(&format!("[HKEY_LOCAL_MACHINE\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion]\r\n\"CurrentBuildNumber\"=\"{build}\"\r\n"));
    serve(&machine);
    if kind.unattend {
        // The command that the answer file runs during Windows Setup.
        let argv = [r"C:\delivered\capw-firstboot.ps1".to_owned(), "-Install".to_owned()];
        assert!(matches!(machine.powershell(&argv, None), Ended::Code(0)), "{}", machine.console());
        machine.boot();
        serve(&machine);
    }
    (machine, bootstrap.plan)
}

/// The thumbprint of the certificate for certutil: the stand-in does not read certificates.
fn thumbprint(plan: &Plan) -> Option<String> {
    let plan = super::json(plan);
    let items = plan["items"].as_array()?.iter();
    let check = items
        .filter(|item| item["argv"][0].as_str().is_some_and(|program| program.ends_with("certutil.exe")))
        .find_map(|item| item["check"]["registryKey"].as_str());
    check?.rsplit('\\').next().map(str::to_owned)
}

/// The service that runs the loader at the first start.
pub fn first(kind: Kind) -> Source {
    if kind.unattend { Source::Tasks } else { Source::CloudbaseInit }
}

/// Offers the programs inside the machine, until it is switched off.
pub fn serve(machine: &Machine) {
    let network = format!("/proc/{}/ns/net", machine.pid());
    let bind = move || {
        move_into_link_name_space(fs::File::open(network)?.as_fd(), Some(LinkNameSpaceType::Network))?;
        TcpListener::bind(("127.0.0.1", PORT))
    };
    // A separate short-lived thread, because it moves into the machine's network.
    let listener = std::thread::spawn(bind).join().expect("a thread").expect("a port of the machine");
    let files = files();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let mut request = String::new();
            let _ = reader.read_line(&mut request);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
                line.clear();
            }
            let path = request.split_whitespace().nth(1).unwrap_or_default();
            let found = files.iter().find(|(name, _)| path.ends_with(name.as_str()));
            let mut stream = reader.into_inner();
            let (status, bytes) = found.map_or(("404 Not Found", &[][..]), |(_, bytes)| ("200 OK", bytes));
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", bytes.len());
            let _ = stream.write_all(bytes);
        }
    });
}
