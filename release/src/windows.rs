//! The entry for Windows. It is for HostProcess containers alone: they run on Windows itself and see its files, so that one entry that has
//! nothing of Windows fits every build, while other containers need a base image with the build of their host.
//!
//! containerd takes an entry without `os.version` for every build from 1.7 on, <https://github.com/containerd/containerd/pull/8101>.

mod hive;
mod security;

use anyhow::Result;
use data_encoding::BASE64;
use serde_json::{Value, json};

use self::security::{ADMINISTRATORS, FILE_ALL, FILE_READ_AND_EXECUTE, SYSTEM, USERS};
use crate::layer::{Entry, Layer};

const PROGRAM: &str = "Files/capw-node.exe";

/// Attributes of a folder and of a file, as Windows numbers them.
const DIRECTORY: u8 = 16;
const ARCHIVE: u8 = 32;

/// What Windows asks of a base layer when it unpacks one: five files of the registry. Empty files were enough before Windows Server 2025.
/// Microsoft's own base image for HostProcess containers has these and its licence,
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

/// The layer with the program. It has the form in which BuildKit writes layers for Windows, as nearly all HostProcess images have it: the
/// folders `Hives` and `Files`, and headers that go-winio reads,
/// <https://github.com/moby/buildkit/blob/master/util/winlayers/differ.go>,
/// <https://github.com/microsoft/go-winio/blob/main/backuptar/tar.go>.
pub fn program(bytes: Vec<u8>, created: u32) -> Result<Layer> {
    // Without it the rights would be those of the folder in which containerd keeps layers.
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

/// How the program runs on Windows.
pub fn config(labels: &Value) -> Value {
    json!({
        // The files of the image are at C:\hpc in the view of this one container, or at C:\hpc\CONTAINER where Windows cannot do that (Server
        // 2019). The shim puts in which, <https://github.com/microsoft/hcsshim/blob/v0.11.7/internal/jobcontainers/jobcontainer.go>.
        // A bare name may be found elsewhere: in the pod's working directory, or by the host's PATH.
        "Entrypoint": [r"%CONTAINER_SANDBOX_MOUNT_POINT%\capw-node.exe"],
        // No user: a pod has to name one of Windows' own accounts. No PATH: there would be two, the host's and this.
        "Labels": labels,
    })
}
