//! `make demo`, run as CI would: to its end, in a cluster of its own and in an existing one, leaving nothing behind. Its program is built
//! with the tests: a compiler beside a story would take its time away.

use std::path::Path;
use std::process::Output;

use capw_libvirtd::Daemon;
use tempfile::TempDir;
use tokio::process::Command;

use crate::world::{self, ControlPlane, Kind, Options, hardware, wine::skip};

async fn demo(args: &[&str], temporary: &Path) -> Output {
    let own = std::env::current_exe().expect("the path of this program");
    let program = own.ancestors().nth(2).expect("tests lie in target/PROFILE/deps").join("examples/demo");
    assert!(program.exists(), "{} is missing: run `cargo build --example demo` first", program.display());
    let mut demo = Command::new(program);
    demo.arg("--once").args(args).current_dir(world::checkout()).env("TMPDIR", temporary).stdin(std::process::Stdio::null());
    demo.output().await.expect("the demo runs")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// libvirt's sockets for a VM are deep below it, and the path of a socket has 107 characters at most.
fn short_directory() -> TempDir {
    tempfile::Builder::new().prefix("d").rand_bytes(2).tempdir().expect("a temporary directory")
}

fn assert_empty(temporary: &Path) {
    let left: Vec<_> = std::fs::read_dir(temporary).expect("a directory").filter_map(|entry| Some(entry.ok()?.path())).collect();
    assert!(left.is_empty(), "the demo left {left:?}");
}

#[test]
fn the_demo_plays_to_its_end() {
    world::run(async {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let output = demo(&[], temporary.path()).await;
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        let ready = said.lines().filter(|line| line.starts_with("node/win-") && line.contains(" Ready ")).count();
        // Three after they came, three of the other version, one after scaling down.
        assert_eq!(ready, 7, "{said}");
        assert!(said.contains("nothing is left"), "{said}");
        assert_empty(temporary.path());
    });
}

/// The image of a person, here the Linux that stands for Windows, joins a cluster that listens where VMs reach it.
#[test]
fn the_demo_starts_an_image_of_ones_own() {
    world::run(async {
        let temporary = short_directory();
        let own = tempfile::tempdir().expect("a directory for the image");
        let anyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(own.path(), anyone).expect("the daemon may enter it");
        let image = own.path().join("own.raw");
        // Its guest goes to the address of the plan: the port of its forwarder is of no use.
        if let Err(said) = hardware::guest(0, &image) {
            return skip("demo", &said);
        }
        let before = std::fs::read(&image).expect("the image");
        let flag = format!("--image={}", image.display());
        let output = demo(&["--hypervisor=libvirt", &flag, "--firmware=bios"], temporary.path()).await;
        let said = said(&output);
        if said.contains("NOT RUN") && std::env::var_os("CI").is_none() {
            return skip("demo", &said);
        }
        assert!(output.status.success() && said.contains("your image joined as a node") && said.contains("nothing is left"), "{said}");
        assert_eq!(std::fs::read(&image).expect("the image"), before, "the image was changed");
        assert_empty(temporary.path());
    });
}

/// The same on a host of a person, whose daemon and pool are there before and after: all that the demo makes there goes.
#[test]
fn the_demo_makes_its_vm_on_a_host_of_ones_own() {
    world::run(async {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let Some(daemon) = Daemon::start() else { return };
        let mut made = Ok(());
        daemon.pool_with("lab", |directory| made = hardware::guest(0, &directory.join("linux.raw")));
        if let Err(said) = made {
            return skip("demo", &said);
        }
        let connect = format!("--connect={}", daemon.address());
        let flags = ["--hypervisor=libvirt", "--image=linux.raw", "--firmware=bios", &connect, "--pool=lab", "--acceleration=tcg"];
        let output = demo(&flags, temporary.path()).await;
        let said = said(&output);
        assert!(output.status.success() && said.contains("your image joined as a node") && said.contains("nothing is left"), "{said}");
        assert_eq!(daemon.domains(), Vec::<String>::new());
        let volumes = daemon.virsh(["vol-list", "--pool", "lab"]);
        assert_eq!(volumes.lines().skip(2).filter(|line| !line.trim().is_empty()).count(), 1, "{volumes}");
        assert_empty(temporary.path());
    });
}

#[test]
fn the_demo_leaves_an_existing_cluster_as_it_was() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("existing")).await;
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let kubeconfig = format!("--kubeconfig={}", cp.kubeconfig().display());

        let output = demo(&[&kubeconfig], temporary.path()).await;
        let refused = said(&output);
        assert!(!output.status.success() && refused.contains("no Cluster API") && refused.contains("clusterctl init"), "{refused}");

        cp.start_core().await;
        let before = things(&cp).await;
        let output = demo(&[&kubeconfig], temporary.path()).await;
        let played = said(&output);
        assert!(output.status.success() && played.contains("nothing is left"), "{played}");
        assert_eq!(things(&cp).await, before);
        assert_empty(temporary.path());
    });
}

/// What the demo could leave in a cluster.
async fn things(cp: &ControlPlane) -> Vec<String> {
    let mut names = Vec::new();
    for kind in [Kind::NAMESPACE, Kind::CUSTOM_RESOURCE_DEFINITION, Kind::NODE, Kind::CLUSTER, Kind::CERTIFICATE_SIGNING_REQUEST] {
        let objects = cp.list(kind, None).await;
        names.extend(objects.iter().map(|object| format!("{} {}", kind.plural, world::text(object, "/metadata/name"))));
    }
    names.sort();
    names
}
