//! The machine under a Wine guest: separate namespaces for processes, network, host name and mounts, and a cable to this host.
//!
//! Its first process waits for the end of its standard input, which this process holds: when the guest is switched off, and
//! when the operator dies in any way, the kernel ends everything inside and takes the network away.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream as AsyncTcpStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;
use uuid::Uuid;

/// The script of the first process. Wine's server always keeps its socket below /tmp. The kubelet resolves the address of its name.
const FIRST: &str = r#"set -e
sockets=/tmp/.wine-$(id -u); mkdir -p -m 700 "$sockets"; mount -t tmpfs -o mode=700 none "$sockets"
printf '127.0.0.1 localhost\n%s %s\n' "$2" "$1" > "$sockets/hosts"; mount --bind "$sockets/hosts" /etc/hosts
hostname "$1"; ip link set lo up
echo ready; read -r _ || true"#;
/// The script for the network inside, once the cable exists.
const NETWORK: &str = r#"set -e
ip address add "$1/24" dev eth0; ip link set eth0 up; ip route add default via "$2""#;
/// The script that runs one program inside: it writes its process number into a file if one is given, and runs the program in the directory.
const ENTER: &str = r#"cd "$1"; if [ -n "$2" ]; then echo $$ > "$2"; fi; shift 2; exec "$@""#;
/// Debian's path of Wine; elsewhere Wine is found by its name.
const WINE: &str = "/usr/lib/wine/wine64";
const SERVER: &str = "/usr/lib/wine/wineserver";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The time limit until the namespaces exist, and until they are removed.
const SWITCH: Duration = Duration::from_secs(20);

/// A machine that is on. Its drop cuts the power.
#[derive(Debug)]
pub struct Machine {
    first: Child,
    power: Option<ChildStdin>,
    pid: u32,
    /// The Wine prefix: the machine's disk and registry.
    prefix: PathBuf,
    network: Vec<tokio::task::AbortHandle>,
}

fn failed(what: &str, output: &Output) -> io::Error {
    let text = String::from_utf8_lossy(&output.stderr);
    io::Error::other(format!("{what}: {}", text.lines().last().unwrap_or("it failed without a word")))
}

fn ended(program: &str, output: io::Result<Output>) -> Result<(), String> {
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(program, &output).to_string()),
        Err(error) => Err(format!("a Wine guest needs the program {program}: {error}")),
    }
}

async fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output().await?;
    if output.status.success() { Ok(()) } else { Err(failed(&format!("{program} {}", arguments.join(" ")), &output)) }
}

impl Machine {
    /// Creates the namespaces and the cable. `address` is the machine's address, `vm` gives the cable its name on this host.
    pub async fn switch_on(prefix: &Path, host_name: &str, vm: Uuid, address: Ipv4Addr) -> io::Result<Self> {
        let namespaces = ["--fork", "--pid", "--net", "--uts", "--ipc", "--mount", "--mount-proc", "--kill-child"];
        let mut first = Command::new("unshare")
            .args(namespaces)
            .args(["sh", "-c", FIRST, "sh", host_name, &address.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("a Wine guest needs the program unshare: {error}")))?;
        let (power, output, pid) = (first.stdin.take(), first.stdout.take(), first.id().unwrap_or_default());
        let mut line = String::new();
        if let Some(output) = output {
            timeout(SWITCH, BufReader::new(output).read_line(&mut line)).await.map_err(io::Error::other)??;
        }
        if line.trim() != "ready" {
            drop(power);
            return Err(failed("a Wine guest needs root, iproute2 and namespaces", &first.wait_with_output().await?));
        }
        let machine = Self { first, power, pid, prefix: prefix.to_owned(), network: Vec::new() };
        machine.connect(vm, address).await?;
        Ok(machine)
    }

    async fn connect(&self, vm: Uuid, address: Ipv4Addr) -> io::Result<()> {
        let [a, b, c, d, ..] = *vm.as_bytes();
        let cable = format!("capw{a:02x}{b:02x}{c:02x}{d:02x}");
        // This host is the machine's gateway. Wine needs a gateway with an address.
        let [x, y, z, last] = address.octets();
        let gateway = Ipv4Addr::new(x, y, z, if last == 1 { 2 } else { 1 }).to_string();
        let address = address.to_string();
        // The remains of an earlier machine: the kernel removes the cable a moment after the machine.
        let _ = run("ip", &["link", "delete", &cable]).await;
        run("ip", &["link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &self.pid.to_string()]).await?;
        run("ip", &["address", "add", &format!("{gateway}/32"), "dev", &cable]).await?;
        run("ip", &["link", "set", &cable, "up"]).await?;
        let output = self.inside().args(["sh", "-c", NETWORK, "sh", &address, &gateway]).output().await?;
        if !output.status.success() {
            return Err(failed("the network of a Wine guest", &output));
        }
        run("ip", &["route", "replace", &format!("{address}/32"), "dev", &cable]).await
    }

    /// Lets this host's port on the loopback address answer inside as well.
    pub async fn forward(&mut self, address: SocketAddr) -> io::Result<()> {
        let listener = self.network_inside(move || TcpListener::bind(address)).await?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((mut inside, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(async move {
                    if let Ok(mut outside) = AsyncTcpStream::connect(address).await {
                        let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
                    }
                });
            }
        });
        self.network.push(task.abort_handle());
        Ok(())
    }

    /// Runs work on a thread whose network is the machine's.
    async fn network_inside<T: Send + 'static>(&self, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let network = format!("/proc/{}/ns/net", self.pid);
        // A separate thread, which ends with the work: no other task may get its network.
        let inside = move || {
            std::thread::Builder::new().spawn(move || {
                move_into_link_name_space(File::open(network)?.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            })
        };
        let joined = tokio::task::spawn_blocking(move || inside()?.join().map_err(|_| io::Error::other("the thread failed"))?);
        joined.await.map_err(io::Error::other)?
    }

    /// Whether a GET of `http://host:port/path` inside answers with 200.
    pub async fn answers(&self, url: &str) -> io::Result<bool> {
        let Some((authority, path)) = url.strip_prefix("http://").map(|rest| rest.split_once('/').unwrap_or((rest, ""))) else {
            return Err(io::Error::other(format!("a Wine guest can ask http:// addresses only, not {url}")));
        };
        let (authority, request) = (authority.to_owned(), format!("GET /{path} HTTP/1.0\r\nHost: {authority}\r\n\r\n"));
        let asked = self.network_inside(move || {
            let mut stream = TcpStream::connect(&authority)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(request.as_bytes())?;
            let mut start = [0; 12];
            stream.read_exact(&mut start)?;
            Ok(start.ends_with(b" 200"))
        });
        Ok(asked.await.unwrap_or(false))
    }

    /// Downloads a file from inside, as Windows would: by that proxy or directly, checked against these authorities and the host's.
    pub async fn download(&self, url: &str, to: &Path, proxy: Option<&str>, authorities: Option<&Path>, seconds: u32) -> Result<(), String> {
        let mut command = self.inside();
        command.args(["curl", "--silent", "--show-error", "--fail", "--location", "--max-time", &seconds.to_string(), "--output"]).arg(to);
        if let Some(authorities) = authorities {
            command.arg("--cacert").arg(authorities);
        }
        // The proxy is passed in a variable: every process can see arguments.
        command.arg("--").arg(url).envs(proxy.map(|proxy| ("ALL_PROXY", proxy)));
        ended("curl", command.output().await)
    }

    /// Unpacks an archive as tar.exe does.
    pub async fn unpack(&self, archive: &Path, into: &Path, strip: u32) -> Result<(), String> {
        let mut command = self.inside();
        command.args(["tar", "-x", "--no-same-owner", "--strip-components", &strip.to_string(), "-f"]).arg(archive).arg("-C").arg(into);
        ended("tar", command.output().await)
    }

    /// Whether a program listens on that port inside.
    pub async fn listens(&self, port: u16) -> io::Result<bool> {
        let asked = self.network_inside(move || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop));
        Ok(asked.await.is_ok())
    }

    /// The command for a Unix program inside.
    fn inside(&self) -> Command {
        let pid = self.pid.to_string();
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &pid, "--net", "--uts", "--ipc", "--mount", &format!("--pid=/proc/{pid}/ns/pid_for_children"), "--"])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .env_clear()
            .env("PATH", PATH);
        command
    }

    /// Drive C:.
    pub fn drive(&self) -> PathBuf {
        self.prefix.join("drive_c")
    }

    /// The command for a Windows program inside, in a directory of this host. `number` is the file for its process number, for [`Machine::kill`].
    pub fn windows(&self, directory: &Path, number: Option<&Path>, argv: &[impl AsRef<OsStr>]) -> Command {
        let wine = if Path::new(WINE).exists() { WINE } else { "wine64" };
        let number = number.map_or(OsStr::new(""), |path| path.as_os_str());
        let mut command = self.inside();
        command
            .args([OsStr::new("sh"), OsStr::new("-c"), OsStr::new(ENTER), OsStr::new("sh"), directory.as_os_str(), number])
            .arg(wine)
            .args(argv)
            .env("HOME", &self.prefix)
            .env("WINEPREFIX", &self.prefix)
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "pdh=n")
            .env("DISPLAY", "");
        command
    }

    /// Runs a small program of Wine or of CAPW to its end; returns its exit status and its output.
    pub async fn tool(&self, argv: &[&str]) -> io::Result<(ExitStatus, String)> {
        let mut command = self.windows(&self.drive(), None, argv);
        let output = timeout(Duration::from_secs(90), command.output()).await.map_err(io::Error::other)??;
        Ok((output.status, String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n")))
    }

    /// Ends the program whose number is in the file; an ended program is no error.
    pub async fn kill(&self, number: &Path) -> io::Result<()> {
        let Ok(pid) = fs::read_to_string(number) else { return Ok(()) };
        self.inside().args(["kill", "-9", pid.trim()]).stderr(Stdio::null()).status().await?;
        fs::remove_file(number)
    }

    /// The number of the process that holds the namespaces.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Shuts Windows down in order, so that Wine writes its registry: a restart does this, a power cut does not.
    pub async fn shut_down(&self) {
        let server = if Path::new(SERVER).exists() { SERVER } else { "wineserver" };
        let mut command = self.inside();
        command.args([server, "-k"]).env("HOME", &self.prefix).env("WINEPREFIX", &self.prefix).stderr(Stdio::null());
        let _ = timeout(SWITCH, command.status()).await;
    }

    /// Cuts the power and waits until nothing inside runs any more.
    pub async fn switch_off(mut self) {
        self.power = None;
        if timeout(SWITCH, self.first.wait()).await.is_err() {
            let _ = self.first.kill().await;
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.network.iter().for_each(tokio::task::AbortHandle::abort);
    }
}
