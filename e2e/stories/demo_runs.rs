//! Runs the demo as CI does: to its end, in a cluster of its own and in an existing one, and leaves nothing behind. Its program is built with the
//! tests, because a compiler that runs beside a story would slow it down.

#[path = "../demo/late.rs"]
mod late;
#[path = "../demo/sample.rs"]
mod sample;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use capw_libvirtd::{Daemon, Sshd, Tls};
use rcgen::ExtendedKeyUsagePurpose;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::authority::Authority;
use crate::world::{self, ControlPlane, Kind, Options, free_port, hardware, interrupt, wait_for, wine::skip};

/// The limit until the demo has created a VM.
const LIMIT: Duration = Duration::from_secs(120);

/// A running demo, and its output.
struct Demo {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: String,
}

impl Demo {
    /// Starts the demo with the flags that the Makefile gives it for these variables.
    async fn start(variables: &[impl AsRef<OsStr>], temporary: &Path) -> Self {
        Self::spawn(&mut Self::command(variables, temporary).await)
    }

    /// Starts the demo in its own process group, as a shell does for Ctrl-C, and outside this test, which ends at once by a signal.
    async fn start_in_shell(variables: &[impl AsRef<OsStr>], temporary: &Path) -> Self {
        Self::spawn(Self::command(variables, temporary).await.process_group(0).env_remove("NEXTEST"))
    }

    async fn command(variables: &[impl AsRef<OsStr>], temporary: &Path) -> Command {
        let mut make = Command::new("make");
        // The flags of the Makefile run that started this test must not reach this one.
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        let output = make.args(["--dry-run", "demo"]).args(variables).current_dir(world::checkout()).output().await.expect("make runs");
        let commands = String::from_utf8_lossy(&output.stdout);
        let (_, flags) = commands.rsplit_once("--example demo -- ").unwrap_or_else(|| panic!("make demo: {output:?}"));
        let own = std::env::current_exe().expect("the path of this program");
        let program = own.ancestors().nth(2).expect("tests lie in target/PROFILE/deps").join("examples/demo");
        assert!(program.exists(), "{} is missing: run `cargo build --example demo` first", program.display());
        let mut demo = Command::new("sh");
        demo.arg("-c").arg(format!("exec \"$0\" --once {} 2>&1", flags.trim())).arg(program).current_dir(world::checkout());
        demo.env("TMPDIR", temporary).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        demo
    }

    fn spawn(demo: &mut Command) -> Self {
        let mut process = demo.spawn().expect("the demo starts");
        let lines = BufReader::new(process.stdout.take().expect("its words")).lines();
        Self { process, lines, said: String::new() }
    }

    async fn line(&mut self) -> Option<String> {
        let line = self.lines.next_line().await.expect("lines in UTF-8")?;
        self.said.push_str(&format!("{line}\n"));
        Some(line)
    }

    /// Returns the next line that contains this text.
    async fn until(&mut self, text: &str) -> String {
        while let Some(line) = self.line().await {
            if line.contains(text) {
                return line;
            }
        }
        panic!("the demo has ended without {text:?}: {}", self.said);
    }

    /// Returns whether the demo succeeded, and its output.
    async fn end(mut self) -> (bool, String) {
        while self.line().await.is_some() {}
        (self.process.wait().await.expect("the demo ends").success(), self.said)
    }
}

async fn demo(variables: &[&str], temporary: &Path) -> (bool, String) {
    Demo::start(variables, temporary).await.end().await
}

/// libvirt creates a VM's sockets deep below this directory, and a socket path has 107 characters at most.
fn short_directory() -> TempDir {
    tempfile::Builder::new().prefix("d").rand_bytes(2).tempdir().expect("a temporary directory")
}

fn assert_empty(temporary: &Path) {
    let left: Vec<_> = std::fs::read_dir(temporary).expect("a directory").filter_map(|entry| Some(entry.ok()?.path())).collect();
    assert!(left.is_empty(), "the demo left {left:?}");
}

/// Checks the number of Ready Nodes: three at first, three of the other version, one after scaling down, then none.
fn assert_played((ended_well, said): (bool, String)) {
    let ready = said.lines().filter(|line| line.starts_with("node/win-") && line.contains(" Ready ")).count();
    assert!(ended_well && ready == 7 && said.contains("nothing is left"), "{ready} Ready Nodes: {said}");
}

fn assert_joined((ended_well, said): &(bool, String)) {
    assert!(*ended_well && said.contains("your image joined as a node") && said.contains("nothing is left"), "{said}");
}

#[test]
fn the_demo_plays_to_its_end() {
    world::run(async {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let played = demo(&[], temporary.path()).await;
        let says_the_network = ["flannel/vxlan", "VniBelow4096", "Linux nodes use VNI 1"].iter().all(|words| played.1.contains(words));
        assert!(says_the_network, "{}", played.1);
        assert_played(played);
        assert_empty(temporary.path());
    });
}

/// Needs only the programs of libvirt and QEMU: runs the small guests on a daemon of the demo's own.
#[test]
fn the_demo_makes_three_real_vms() {
    world::run(async {
        let temporary = short_directory();
        let played = demo(&["HYPERVISOR=libvirt"], temporary.path()).await;
        if played.1.contains("NOT RUN") && std::env::var_os("CI").is_none() {
            return skip("demo", &played.1);
        }
        assert_played(played);
        assert_empty(temporary.path());
    });
}

/// A user's image, here the Linux that stands for Windows, joins a cluster that listens where VMs reach it.
#[test]
fn the_demo_starts_an_image_of_ones_own() {
    world::run(async {
        let temporary = short_directory();
        let own = tempfile::tempdir().expect("a directory for the image");
        let anyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(own.path(), anyone).expect("the daemon may enter it");
        let image = own.path().join("own.raw");
        // The image needs no forwarder port, because its guest connects to the address in the plan.
        if let Err(said) = hardware::guest(0, &image) {
            return skip("demo", &said);
        }
        let before = std::fs::read(&image).expect("the image");
        let joined = demo(&["HYPERVISOR=libvirt", &format!("IMAGE={}", image.display()), "FIRMWARE=bios"], temporary.path()).await;
        if joined.1.contains("NOT RUN") && std::env::var_os("CI").is_none() {
            return skip("demo", &joined.1);
        }
        assert_joined(&joined);
        assert_eq!(std::fs::read(&image).expect("the image"), before, "the image was changed");
        assert_empty(temporary.path());
    });
}

/// The pool on a user's host, and the image in it.
const POOL: &str = "lab";
const IMAGE: &str = "linux.raw";

/// Creates the pool on the host. Returns `false` if the image cannot be built here.
fn has_image(host: &Daemon) -> bool {
    let mut made = Ok(());
    host.pool_with(POOL, |directory| made = hardware::guest(0, &directory.join(IMAGE)));
    made.inspect_err(|said| skip("demo", said)).is_ok()
}

/// Returns the variables for a machine on a user's host at this address.
fn on_host(address: &str, more: &[&str]) -> Vec<String> {
    let given =
        ["HYPERVISOR=libvirt", &format!("IMAGE={IMAGE}"), "FIRMWARE=bios", &format!("CONNECT={address}"), &format!("POOL={POOL}")].map(str::to_owned);
    given.into_iter().chain(more.iter().map(|text| (*text).to_owned())).collect()
}

async fn start_on_host(address: &str, more: &[&str], temporary: &Path) -> Demo {
    Demo::start(&on_host(address, more), temporary).await
}

/// Checks that the image joins and that the demo leaves nothing behind. Returns the demo's output.
async fn joins_on_host(host: &Daemon, address: &str, more: &[&str]) -> String {
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let joined = start_on_host(address, more, temporary.path()).await.end().await;
    assert_joined(&joined);
    assert_as_before(host);
    assert_empty(temporary.path());
    joined.1
}

/// Checks that the demo left nothing on the user's host.
fn assert_as_before(host: &Daemon) {
    assert_eq!(host.domains(), Vec::<String>::new());
    let volumes = host.virsh(["vol-list", "--pool", POOL]);
    assert_eq!(volumes.lines().skip(2).filter(|line| !line.trim().is_empty()).count(), 1, "{volumes}");
}

/// Runs on a user's host, whose daemon and pool exist before and after, also after Ctrl-C. If a step takes too long, the demo reports it with
/// commands that show why.
#[test]
fn the_demo_makes_its_vm_on_a_host_of_ones_own() {
    world::run(async {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let Some(host) = Daemon::start() else { return };
        if !has_image(&host) {
            return;
        }
        let held = host.hold_disks();
        let mut demo = start_on_host(&host.address(), &["ACCELERATION=tcg"], temporary.path()).await;
        let late = demo.until("longer than it should take").await;
        assert!(late.contains(" has no VM that runs after 1 min"), "{late}");
        let machine = late.split_whitespace().nth(1).expect("its name").to_owned();
        for sign in [&machine, &machine, "State"] {
            let command = demo.line().await.expect("a command");
            let output = Command::new("sh").arg("-c").arg(&command).output().await.expect("a shell");
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(shown.contains(sign), "{sign:?} is not in what {command} shows: {output:?}");
        }
        std::fs::remove_file(held).expect("the disk may be made");
        let joined = demo.end().await;
        assert_joined(&joined);
        assert_eq!(joined.1.matches(" has no VM that runs after").count(), 1, "{}", joined.1);
        assert_as_before(&host);
        assert_empty(temporary.path());

        let demo = Demo::start_in_shell(&on_host(&host.address(), &["ACCELERATION=tcg"]), temporary.path()).await;
        let a_vm = || async { (!host.domains().is_empty()).then_some(()) };
        wait_for("a VM of the demo", LIMIT, a_vm).await;
        interrupt(demo.process.id().expect("the demo runs"));
        let (ended_well, said) = demo.end().await;
        assert!(ended_well && said.contains("deleting the Cluster, and with it machines, VMs and Nodes"), "{said}");
        assert!(!said.contains("your image joined"), "it was not interrupted: {said}");
        assert_as_before(&host);
        assert_empty(temporary.path());
    });
}

/// If the user does not set the acceleration, the demo uses the one that libvirt reports.
#[test]
fn the_demo_makes_its_vm_through_ssh() {
    world::run(async {
        let Some(host) = Daemon::start() else { return };
        let Some(sshd) = Sshd::start(&host) else { return };
        if !has_image(&host) {
            return;
        }
        let known_hosts = sshd.path("known_hosts");
        std::fs::write(&known_hosts, sshd.known_hosts()).expect("a file");
        let login = format!("LOGIN=ssh-privatekey={} known_hosts={}", sshd.path("ours").display(), known_hosts.display());
        let said = joins_on_host(&host, &sshd.address(&host.socket()), &[&login]).await;
        let has_kvm = host.try_virsh(["domcapabilities", "--virttype", "kvm"]).status.success();
        let told = if has_kvm { "it runs the guests by KVM" } else { "QEMU translates the guests" };
        assert!(said.contains(told), "{told:?} is not in {said}");
    });
}

/// Runs as root on a host with a system daemon and a libvirt network.
#[test]
fn the_demo_makes_its_vm_in_system_mode() {
    world::run(async {
        let Some(host) = Daemon::start_system() else { return };
        host.join_network();
        if !has_image(&host) {
            return;
        }
        joins_on_host(&host, &host.address(), &["ACCELERATION=tcg", &format!("NETWORK={}", capw_libvirtd::NETWORK)]).await;
    });
}

#[test]
fn the_demo_makes_its_vm_through_tls() {
    world::run(async {
        let (authority, port) = (Authority::new("lab"), free_port());
        let daemon = authority.issue("daemon", &["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
        let tls = Tls { port, authority: &authority.pem, certificate: &daemon.certificate, key: &daemon.key, client: "capw" };
        let Some(host) = Daemon::start_with(|directory| tls.configure(directory)) else { return };
        if !has_image(&host) {
            return;
        }
        let ours = authority.issue("capw", &[], ExtendedKeyUsagePurpose::ClientAuth);
        let login = [("ca.crt", &authority.pem), ("tls.crt", &ours.certificate), ("tls.key", &ours.key)].map(|(key, value)| {
            let file = host.path(key);
            std::fs::write(&file, value).expect("a file");
            format!("{key}={}", file.display())
        });
        let address = format!("qemu+tls://127.0.0.1:{port}/session");
        joins_on_host(&host, &address, &[&format!("LOGIN={}", login.join(" ")), "ACCELERATION=tcg"]).await;
    });
}

/// The demo reports what a host lacks, with the remedy, before it creates anything.
#[test]
fn the_demo_says_what_a_host_lacks() {
    world::run(async {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let Some(host) = Daemon::start() else { return };
        host.pool_with(POOL, |_| {});
        let (ended_well, said) = start_on_host(&host.address(), &[], temporary.path()).await.end().await;
        assert!(!ended_well && said.contains("the hypervisor lacks what the machines need") && said.contains(IMAGE), "{said}");
        assert!(!said.contains("applying"), "{said}");
        assert_empty(temporary.path());
    });
}

#[test]
fn the_demo_leaves_an_existing_cluster_as_it_was() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("existing")).await;
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let kubeconfig = format!("KUBECONFIG={}", cp.kubeconfig().display());

        let (ended_well, refused) = demo(&[&kubeconfig], temporary.path()).await;
        assert!(!ended_well && refused.contains("no Cluster API") && refused.contains("clusterctl init"), "{refused}");

        cp.start_core().await;
        let before = things(&cp).await;
        let (ended_well, played) = demo(&[&kubeconfig], temporary.path()).await;
        assert!(ended_well && played.contains("nothing is left"), "{played}");
        assert_eq!(things(&cp).await, before);
        assert_empty(temporary.path());
    });
}

/// Returns the objects that the demo could leave in a cluster.
async fn things(cp: &ControlPlane) -> Vec<String> {
    let mut names = Vec::new();
    for kind in [Kind::NAMESPACE, Kind::CUSTOM_RESOURCE_DEFINITION, Kind::NODE, Kind::CLUSTER, Kind::CERTIFICATE_SIGNING_REQUEST] {
        let objects = cp.list(kind, None).await;
        names.extend(objects.iter().map(|object| format!("{} {}", kind.plural, world::text(object, "/metadata/name"))));
    }
    names.sort();
    names
}
