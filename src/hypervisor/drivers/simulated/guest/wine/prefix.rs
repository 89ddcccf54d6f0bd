//! The disk of a Wine guest: a copy of the prepared prefix, in which big files are links, with the content of its image.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::registry::HEADER;
use crate::bootstrap::paths;
use crate::hypervisor::drivers::simulated::guest::error::JoinError;

/// The prepared prefix among the programs; e2e/tools/windows/build.sh builds it.
const PREPARED: &str = "wine-prefix";
const CONTAINERD: &str = "containerd";

/// A Windows release as the registry describes it.
struct Release {
    /// The part of an image's name that selects the release.
    year: &'static str,
    build: &'static str,
    revision: u32,
}

/// Builds from <https://learn.microsoft.com/windows-server/get-started/windows-server-release-info>; the revisions are some of them.
const RELEASES: [Release; 3] = [
    Release { year: "2019", build: "17763", revision: 6532 },
    Release { year: "2022", build: "20348", revision: 2849 },
    Release { year: "2025", build: "26100", revision: 2314 },
];

/// Links or copies the content of the prepared prefix. Files that Wine writes in place must not be shared.
pub fn make(programs: &Path, prefix: &Path) -> Result<(), JoinError> {
    let from = programs.join(PREPARED);
    if !from.join("drive_c").is_dir() {
        return Err(JoinError(format!("{} does not exist: e2e/tools/windows/build.sh makes it, where Wine is installed", from.display())));
    }
    let wrong = |error: io::Error| JoinError(format!("the disk of the Wine guest cannot be made from {}: {error}", from.display()));
    // The directory may be the remains of an interrupted copy.
    let part = prefix.with_extension("part");
    super::super::super::record::remove_all(&part).map_err(wrong)?;
    copy(&from, &part).map_err(wrong)?;
    fs::rename(&part, prefix).map_err(wrong)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            copy(&from, &to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
        } else {
            let program =
                to.extension().is_some_and(|end| ["dll", "exe", "sys", "drv", "ocx", "cpl", "nls", "ttf"].iter().any(|known| end == *known));
            place(&from, &to, program)?;
        }
    }
    Ok(())
}

/// Creates a link if the file may be shared and both places are on one file system, otherwise a copy.
fn place(from: &Path, to: &Path, shared: bool) -> io::Result<()> {
    if shared && fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(|_| ())
}

/// Installs the programs of the node on the disk, as an image with these programs has them: Kubernetes of the plan's version, and the
/// containerd that the image's name selects (`…containerd-1.7…`), otherwise the newest.
pub fn install(programs: &Path, prefix: &Path, image: &str, kubernetes: &str) -> Result<(), JoinError> {
    let kubernetes = kubernetes.trim_start_matches('v');
    let line = image.split_once("containerd-").map(|(_, line)| line.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap_or_default());
    let found = newest(programs, line.unwrap_or_default())?;
    for (program, version, path) in [
        ("kubelet", kubernetes, paths::KUBELET),
        ("kubeadm", kubernetes, paths::KUBEADM),
        ("kube-log-runner", kubernetes, paths::LOG_RUNNER),
        ("kube-proxy", kubernetes, paths::KUBE_PROXY),
        (CONTAINERD, &found, paths::CONTAINERD),
    ] {
        let from = programs.join(format!("{program}-windows-{version}")).join(format!("{program}.exe"));
        let to = resolve(prefix, path)?;
        let placed = || {
            if to.exists() {
                return Ok(());
            }
            to.parent().map_or(Ok(()), fs::create_dir_all)?;
            place(&from, &to, true)
        };
        placed().map_err(|error: io::Error| {
            JoinError(format!("{} cannot be put onto the guest's disk ({error}): e2e/tools/windows/build.sh makes the program", from.display()))
        })?;
    }
    Ok(())
}

/// The newest containerd of a line (`1.7`), or of all lines.
fn newest(programs: &Path, line: &str) -> Result<String, JoinError> {
    let start = format!("{CONTAINERD}-windows-");
    let entries = fs::read_dir(programs).map_err(|error| JoinError(format!("{}: {error}", programs.display())))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let versions = names.filter_map(|name| name.strip_prefix(&start).map(str::to_owned)).filter(|version| version.starts_with(line));
    let number = |version: &String| version.split('.').map(|part| part.parse::<u32>().unwrap_or_default()).collect::<Vec<_>>();
    versions.max_by_key(number).ok_or_else(|| {
        JoinError(format!(
            "there is no {start}{line} in {}: e2e/tools/windows/build.sh makes it, where a compiler for Windows is installed",
            programs.display()
        ))
    })
}

/// The machine's description by Windows and the firmware, as a file for `reg import`: the kubelet reads it at each start.
pub fn description(image: &str, uuid: uuid::Uuid, boot: u32) -> String {
    let release = RELEASES.iter().find(|release| image.contains(release.year)).unwrap_or(&RELEASES[1]);
    let Release { year, build, revision } = release;
    format!(
        "{HEADER}\
         [HKEY_LOCAL_MACHINE\\SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion]\r\n\
         \"CurrentMajorVersionNumber\"=dword:0000000a\r\n\"CurrentMinorVersionNumber\"=dword:00000000\r\n\
         \"CurrentBuildNumber\"=\"{build}\"\r\n\"CurrentBuild\"=\"{build}\"\r\n\"UBR\"=dword:{revision:08x}\r\n\
         \"ProductName\"=\"Windows Server {year} Datacenter\"\r\n\r\n\
         [HKEY_LOCAL_MACHINE\\SYSTEM\\HardwareConfig]\r\n\"LastConfig\"=\"{{{uuid}}}\"\r\n\r\n\
         [HKEY_LOCAL_MACHINE\\SYSTEM\\CurrentControlSet\\Control\\Session Manager\\Memory Management\\PrefetchParameters]\r\n\
         \"BootId\"=dword:{boot:08x}\r\n"
    )
}

/// The path on this host of a path of Windows (`C:\k\kubelet.exe`). The case does not matter for existing files.
pub fn resolve(prefix: &Path, windows: &str) -> Result<PathBuf, JoinError> {
    let inside = windows.strip_prefix("C:\\").or_else(|| windows.strip_prefix("c:\\"));
    let inside = inside.ok_or_else(|| JoinError(format!("{windows} is not a path on drive C:, the only one of a Wine guest")))?;
    let mut path = prefix.join("drive_c");
    for part in inside.split('\\').filter(|part| !part.is_empty()) {
        if part == ".." {
            return Err(JoinError(format!("{windows} leaves its directory")));
        }
        let exact = path.join(part);
        let same = |entry: fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.eq_ignore_ascii_case(part)).then(|| entry.path());
        path = match fs::read_dir(&path) {
            Ok(entries) if !exact.exists() => entries.filter_map(Result::ok).find_map(same).unwrap_or(exact),
            _ => exact,
        };
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_either_case_and_stay_on_the_drive() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("drive_c/windows/System32")).unwrap();
        let found = |path: &str| resolve(dir.path(), path).map(|path| path.strip_prefix(dir.path()).unwrap().display().to_string());
        assert_eq!(found(r"C:\Windows\system32\x.dll").unwrap(), "drive_c/windows/System32/x.dll");
        assert_eq!(found(r"C:\New\Deep").unwrap(), "drive_c/New/Deep");
        assert!(found(r"D:\x").unwrap_err().0.contains("drive C:"));
        assert!(found(r"C:\..\..\etc").is_err());
    }

    #[test]
    fn the_image_says_which_containerd() {
        let dir = tempfile::tempdir().unwrap();
        for version in ["1.7.9", "1.7.29", "2.3.7"] {
            fs::create_dir(dir.path().join(format!("containerd-windows-{version}"))).unwrap();
        }
        assert_eq!(newest(dir.path(), "1.7").unwrap(), "1.7.29");
        assert_eq!(newest(dir.path(), "").unwrap(), "2.3.7");
        assert!(newest(dir.path(), "3").unwrap_err().0.contains("build.sh"));
    }

    #[test]
    fn the_machine_describes_itself_as_its_image_does() {
        let text = description("windows-server-2019-containerd-1.7", uuid::Uuid::from_u128(1), 3);
        for part in ["\"17763\"", "Windows Server 2019 Datacenter", "{00000000-0000-0000-0000-000000000001}", "\"BootId\"=dword:00000003"] {
            assert!(text.contains(part), "{part}");
        }
    }
}
