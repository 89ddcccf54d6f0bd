//! The programs of the node: downloaded and verified, or checked to be in the image.

use super::builder::{NODE_DOCS, PlanBuilder, item, owned, why};
use super::proxy;
use crate::api::bootstrap_config::{Download, Program};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Check, Item, Kind};
use crate::vm::FailureCode;

/// The address where the programs of Kubernetes are published.
const RELEASES: &str = "https://dl.k8s.io/release";
const DOWNLOAD_DOCS: &str = "https://kubernetes.io/releases/download/";

/// The programs that every node needs, and their paths.
const NEEDED: [(Program, &str); 4] = [
    (Program::Containerd, paths::CONTAINERD),
    (Program::Kubelet, paths::KUBELET),
    (Program::Kubeadm, paths::KUBEADM),
    (Program::KubeLogRunner, paths::LOG_RUNNER),
];

/// Whether the program is published with Kubernetes, under the node's version.
fn is_of_kubernetes(program: Program) -> bool {
    match program {
        Program::Kubelet | Program::Kubeadm | Program::KubeLogRunner | Program::Kubectl | Program::KubeProxy => true,
        Program::Containerd | Program::CniPlugins | Program::Crictl | Program::Flanneld | Program::FlannelCni => false,
    }
}

/// Returns the path of a downloaded file: an archive is kept only while the plan runs, a program is placed where it is called.
fn path(program: Program) -> String {
    let name = program.name();
    match (archive(program), program) {
        (Some(_), _) => format!(r"{}\{name}.tar.gz", paths::DOWNLOADS),
        (None, Program::FlannelCni) => paths::FLANNEL_CNI.to_owned(),
        (None, _) => format!(r"{}\{name}.exe", paths::KUBERNETES_BIN),
    }
}

/// Returns where an archive is unpacked, how many leading parts of its paths are dropped, and the files it must contain.
fn archive(program: Program) -> Option<(&'static str, u32, &'static [&'static str])> {
    match program {
        Program::Containerd => Some((paths::CONTAINERD_BIN, 1, &["containerd.exe", "containerd-shim-runhcs-v1.exe", "ctr.exe"])),
        Program::CniPlugins => Some((paths::CNI_BIN, 0, &["host-local.exe"])),
        Program::Crictl => Some((paths::KUBERNETES_BIN, 0, &["crictl.exe"])),
        _ => None,
    }
}

/// Adds the downloads, then the checks of the programs that the image must contain.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let downloads = &facts.spec.programs.downloads;
    for download in downloads {
        add(all, facts, download)?;
    }
    for (program, path) in NEEDED.into_iter().filter(|(program, _)| !downloads.iter().any(|download| download.name == *program)) {
        let remedy = "Use an image that has this program at this path (where image-builder puts it), or name it in spec.programs.downloads.";
        let kind = Kind::Wait { check: Check::File(path.into()) };
        let id = format!("program-{}", program.name());
        all.add(Item {
            attempts: 1,
            ..item(&id, FailureCode::ProgramMissing, 5, kind, why("The image must contain the programs of the node.", NODE_DOCS, remedy))
        });
    }
    Ok(())
}

fn add(all: &mut PlanBuilder, facts: &BootstrapFacts, download: &Download) -> Result<(), RenderError> {
    let program = download.name;
    let name = program.name();
    let base = facts.spec.programs.base_url.as_deref().unwrap_or(RELEASES).trim_end_matches('/');
    let url = match &download.url {
        Some(url) => url.clone(),
        None if is_of_kubernetes(program) => format!("{base}/{}/bin/windows/amd64/{name}.exe", facts.kubernetes),
        None => {
            let remedy = "its version is independent of Kubernetes: give the address of the file";
            return Err(RenderError::invalid(format!("spec.programs.downloads[{name}].url"), "", remedy));
        }
    };
    let path = path(program);
    // Archives are removed at the end and must not be downloaded again after that.
    let unless = archive(program).map(|_| Check::File(paths::SENTINEL.into()));
    let remedy = "Check that the address answers from the node (proxy, DNS, CA of the mirror), and that the digest is that of this version.";
    let proxy = proxy::of_download(all, facts, &url)?;
    let kind = Kind::Download { url, path: path.clone(), digest: download.digest.clone(), proxy };
    all.add(Item {
        unless: unless.clone(),
        ..item(
            &format!("download-{name}"),
            FailureCode::ProgramDownload,
            1200,
            kind,
            why("spec.programs asks for it; nothing is used before its digest has been verified.", DOWNLOAD_DOCS, remedy),
        )
    });
    if let Some((directory, strip, files)) = archive(program) {
        let kind = Kind::Archive { path, digest: download.digest.clone(), directory: directory.into(), strip, files: owned(files) };
        let remedy = "Check that the address is that of the release's windows-amd64 archive, and that drive C: has free space.";
        all.add(Item {
            unless,
            ..item(&format!("unpack-{name}"), FailureCode::ProgramArchive, 600, kind, why("It is the archive of a release.", DOWNLOAD_DOCS, remedy))
        });
    }
    Ok(())
}

/// Whether downloaded archives are left in [`paths::DOWNLOADS`].
pub(super) fn leaves_archives(facts: &BootstrapFacts) -> bool {
    facts.spec.programs.downloads.iter().any(|download| archive(download.name).is_some())
}

/// Returns the id of the item that replaces a program, if the program is downloaded.
pub(super) fn unpacked(facts: &BootstrapFacts, program: Program) -> Option<String> {
    facts.spec.programs.downloads.iter().any(|download| download.name == program).then(|| format!("unpack-{}", program.name()))
}
