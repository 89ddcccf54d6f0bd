//! The image's entry for Windows. It is only for HostProcess containers, which run on Windows itself and see its files. An entry without files of
//! Windows therefore fits every build, while other containers need a base image with the build of their host.
//!
//! containerd accepts an entry without `os.version` for every build from 1.7 on, <https://github.com/containerd/containerd/pull/8101>.

mod hive;
mod security;

use anyhow::Result;
use data_encoding::BASE64;
use serde_json::{Value, json};

use self::security::{ADMINISTRATORS, FILE_ALL, FILE_READ_AND_EXECUTE, SYSTEM, USERS};
use crate::layer::{Entry, Layer};

const PROGRAM: &str = "Files/capw-node.exe";

/// The numbers of Windows file attributes for a folder and a file.
const DIRECTORY: u8 = 16;
const ARCHIVE: u8 = 32;

/// The files that Windows requires to unpack a base layer: five registry files. Before Windows Server 2025, empty files were enough.
/// Microsoft's own base image for HostProcess containers has these files and its licence,
/// <https://github.com/microsoft/windows-host-process-containers-base-image/blob/main/New-HostProcessBaseImage.ps1>.
pub fn base(created: u32) -> Result<Layer> {
    let folders = ["Files", "Files/Windows", "Files/Windows/System32", "Files/Windows/System32/config"].map(Entry::folder);
    let hives = [
        "Files/Windows/System32/config/DEFAULT",
        "Files/Windows/System32/config/SAM",
        "Files/Windows/System32/config/SECURITY",
        "Files/Windows/System32/config/SOFTWARE",
        "Files/Windows/System32/config/SYSTEM",
    ];
    let hives = hives.map(|path| Entry::file(path, hive::empty()));
    Layer::of(folders.into_iter().chain(hives).collect(), created)
}

/// The layer with the program. Its form is BuildKit's form of Windows layers, which nearly all HostProcess images have: the
/// folders `Hives` and `Files`, and headers that go-winio reads,
/// <https://github.com/moby/buildkit/blob/master/util/winlayers/differ.go>,
/// <https://github.com/microsoft/go-winio/blob/main/backuptar/tar.go>.
pub fn program(bytes: Vec<u8>, created: u32) -> Result<Layer> {
    // Without this descriptor, the program would get the permissions of containerd's layer folder.
    let rights = security::descriptor(&[(FILE_ALL, ADMINISTRATORS), (FILE_ALL, SYSTEM), (FILE_READ_AND_EXECUTE, USERS)]);
    let mut program = with_attributes(Entry::file(PROGRAM, bytes), ARCHIVE);
    program.headers.push(("MSWINDOWS.rawsd", BASE64.encode(&rights)));
    let folders = ["Hives", "Files"].map(|path| with_attributes(Entry::folder(path), DIRECTORY));
    Layer::of(folders.into_iter().chain([program]).collect(), created)
}

fn with_attributes(mut entry: Entry, attributes: u8) -> Entry {
    entry.headers.push(("MSWINDOWS.fileattr", attributes.to_string()));
    entry
}

/// The configuration of the image on Windows.
pub fn config(labels: &Value) -> Value {
    json!({
        // The files of the image are at C:\hpc in the view of this one container, or at C:\hpc\CONTAINER if Windows lacks such views (Server
        // 2019). The shim inserts the path, <https://github.com/microsoft/hcsshim/blob/v0.11.7/internal/jobcontainers/jobcontainer.go>.
        // A bare name could match another file: in the pod's working directory, or in the host's PATH.
        "Entrypoint": [r"%CONTAINER_SANDBOX_MOUNT_POINT%\capw-node.exe"],
        // No user: a pod has to name a built-in Windows account. No PATH: it would conflict with the host's PATH.
        "Labels": labels,
    })
}
