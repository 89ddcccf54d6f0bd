//! The disk that machines start from: the prepared Wine prefix with PowerShell as drive P:, the stand-ins, and the registry of an image of
//! Windows Server 2022. Created once per run of the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::world::wine;

const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/stories/powershell/windows/stand_in.c");
const SCRIPTS: [(&str, &str); 2] = [("stand-ins.ps1", include_str!("windows/stand-ins.ps1")), ("start.ps1", include_str!("windows/start.ps1"))];
/// Windows programs that the stand-in replaces in system32.
const REPLACED: [&str; 14] =
    ["tzutil", "sc", "w32tm", "certutil", "curl", "dism", "bcdedit", "netsh", "djoin", "route", "msiexec", "shutdown", "taskkill", "tar"];
/// The variables that .NET needs under Wine, where its garbage collector crashes otherwise.
pub const POWERSHELL_ENVIRONMENT: [(&str, &str); 6] = [
    ("DOTNET_TieredPGO", "0"),
    ("DOTNET_EnableWriteXorExecute", "0"),
    ("DOTNET_gcConcurrent", "0"),
    ("DOTNET_GCgen0size", "0x20000000"),
    ("POWERSHELL_TELEMETRY_OPTOUT", "1"),
    ("POWERSHELL_UPDATECHECK", "Off"),
];
/// The registry of Windows Server 2022 (build 20348), Core.
const REGISTRY: &str = r#"REGEDIT4

[HKEY_LOCAL_MACHINE\SOFTWARE\Microsoft\Windows NT\CurrentVersion]
"CurrentBuildNumber"="20348"
"InstallationType"="Server Core"
"UBR"=dword:00001388

[HKEY_LOCAL_MACHINE\SOFTWARE\Microsoft\Virtual Machine\Guest\Parameters]
"HostName"="host"

[HKEY_LOCAL_MACHINE\SOFTWARE\Microsoft\Windows\CurrentVersion\Setup\State]
"ImageState"="IMAGE_STATE_COMPLETE"

[HKEY_LOCAL_MACHINE\SYSTEM\Setup]
"SystemSetupInProgress"=dword:00000000

[HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control\CCG\COMClasses]
"x"="y"

[HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Services\W32Time]
"Type"=dword:00000010
"Start"=dword:00000003
"ErrorControl"=dword:00000001
"ImagePath"="C:\\stand-in\\bin\\svc.exe"
"ObjectName"="LocalSystem"

[HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Services\W32Time\TriggerInfo\0]
"Type"=dword:00000001
"#;
/// Features of the image and their states.
const FEATURES: [(&str, &str); 5] = [
    ("SMB1Protocol", "Disabled"),
    ("Containers", "Disabled"),
    ("Microsoft-Hyper-V", "Disabled"),
    ("Microsoft-Hyper-V-Management-PowerShell", "Disabled"),
    ("TelnetClient", "Enabled"),
];

pub fn wine() -> &'static str {
    if Path::new("/usr/lib/wine/wine64").exists() { "/usr/lib/wine/wine64" } else { "wine64" }
}

pub fn wineserver() -> &'static str {
    if Path::new("/usr/lib/wine/wineserver64").exists() { "/usr/lib/wine/wineserver64" } else { "/usr/lib/wine/wineserver" }
}

/// Sets the environment of a Windows program in that prefix.
pub fn environment(command: &mut Command, prefix: &Path) {
    let overrides: Vec<String> = REPLACED.iter().map(|program| format!("{program}.exe=n")).collect();
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", prefix)
        .env("WINEPREFIX", prefix)
        .env("WINEDEBUG", "-all")
        .env("WINEPATH", r"C:\stand-in\bin")
        .env("PATHEXT", ".COM;.EXE;.BAT;.CMD")
        .env("WINEDLLOVERRIDES", format!("pdh=n;{}", overrides.join(";")))
        .env("DISPLAY", "");
    // These files exist only where a test has set the machine's clock.
    let (clock, library) = (prefix.join("drive_c/stand-in/clock"), Path::new(FAKETIME));
    if clock.exists() && library.exists() {
        command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", clock).env("FAKETIME_NO_CACHE", "1");
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

/// Debian's libfaketime, for clocks that are wrong.
pub const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// The stand-in, compiled.
pub fn stand_in() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = directory().join("stand_in.exe");
        let mut compiler = Command::new("x86_64-w64-mingw32-gcc");
        let output = compiler.args(["-O1", "-o"]).arg(&program).args([STAND_IN, "-lws2_32", "-ladvapi32"]).output();
        let output = output.expect("a compiler for Windows: Debian's gcc-mingw-w64-x86-64");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    })
}

/// The directory of the files that all machines share, kept while the tests run.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIRECTORY.get_or_init(|| tempfile::Builder::new().prefix("capw-powershell-image.").tempdir().expect("a directory")).path()
}

/// Creates the disk of a machine.
pub fn copy(to: &Path) {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    duplicate(IMAGE.get_or_init(make), to);
}

/// Links the files that are read-only, and copies the registry's files.
fn duplicate(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
    run(Command::new("cp").arg("-al").arg(from).arg(to));
    for file in ["system.reg", "user.reg", "userdef.reg", ".update-timestamp"] {
        let (from, to) = (from.join(file), to.join(file));
        let _ = fs::remove_file(&to);
        if from.exists() {
            fs::copy(&from, &to).expect("a copy");
        }
    }
    // Small files that the stand-ins write in place.
    for entry in fs::read_dir(from.join("drive_c/stand-in/features")).into_iter().flatten().flatten() {
        let copy = to.join("drive_c/stand-in/features").join(entry.file_name());
        fs::remove_file(&copy).expect("a link");
        fs::copy(entry.path(), &copy).expect("a copy");
    }
}

fn make() -> PathBuf {
    let prefix = directory().join("prefix");
    duplicate(&wine::programs().join("wine-prefix"), &prefix);
    // With a wrong clock, Wine considers itself newer than its registry, and would revert the changes of a plan.
    fs::write(prefix.join(".update-timestamp"), "disable\n").expect("a file");
    let drive = prefix.join("drive_c");
    let bin = drive.join("stand-in/bin");
    fs::create_dir_all(&bin).expect("a directory");
    let program = bin.join("stand_in.exe");
    fs::copy(stand_in(), &program).expect("a copy");
    let place = |path: PathBuf| {
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        let _ = fs::remove_file(&path);
        fs::hard_link(&program, &path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    };
    let system = ["System32", "system32"].map(|name| drive.join("windows").join(name)).into_iter().find(|path| path.is_dir()).expect("system32");
    for name in REPLACED {
        place(bin.join(format!("{name}.exe")));
        place(system.join(format!("{name}.exe")));
    }
    for name in ["svc", "linger", "hold"] {
        place(bin.join(format!("{name}.exe")));
    }
    for name in ["kubeadm", "kubelet", "kube-log-runner", "kube-proxy", "crictl", "register"] {
        place(drive.join("k").join(format!("{name}.exe")));
    }
    place(drive.join("Program Files/containerd/containerd.exe"));
    place(drive.join("k/credentials/ecr-credential-provider.exe"));
    place(drive.join("Program Files/plugin/plugin.dll"));
    for (name, text) in SCRIPTS {
        fs::write(drive.join("stand-in").join(name), text).expect("a file");
    }
    fs::create_dir_all(drive.join("stand-in/features")).expect("a directory");
    for (name, state) in FEATURES {
        fs::write(drive.join("stand-in/features").join(name), state).expect("a file");
    }
    let powershell = super::shell::windows().expect("CAPW_PWSH");
    std::os::unix::fs::symlink(powershell, prefix.join("dosdevices/p:")).expect("a link");
    fs::write(drive.join("stand-in/image.reg"), REGISTRY.replace('\n', "\r\n")).expect("a file");
    let mut import = Command::new(wine());
    import.args(["reg", "import", r"C:\stand-in\image.reg"]).stdin(Stdio::null());
    environment(&mut import, &prefix);
    run(&mut import);
    let mut wait = Command::new(wineserver());
    wait.arg("-w");
    environment(&mut wait, &prefix);
    run(&mut wait);
    prefix
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
