//! The daemon in system mode: as root, with networks, QEMU's own user, and a daemon for logs, in separate namespaces. Its data
//! lies below one directory, and its bridges are in a network that others cannot see.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{guarded, until};

/// The network of a daemon in system mode: libvirt's usual kind, with NAT and DHCP.
pub const NETWORK: &str = "default";
/// The address of the daemon's host in [`NETWORK`].
pub const HOST: [u8; 4] = [192, 168, 122, 1];
/// The option of a network that lets Windows guests release their leases when they shut down.
pub const RELEASE: &str = "<dnsmasq:option value='dhcp-option=vendor:MSFT,2,1i'/>";

/// The definition of [`NETWORK`]. Its bridge does not probe for other bridges, which would block guests for 4 s. Its leases are short, so that
/// guests which live longer have to renew them.
pub fn network() -> String {
    format!(
        "<network xmlns:dnsmasq='http://libvirt.org/schemas/network/dnsmasq/1.0'>
<name>{NETWORK}</name><forward mode='nat'/><bridge name='virbr0' stp='off'/>
<ip address='192.168.122.1' netmask='255.255.255.0'><dhcp>
<range start='192.168.122.2' end='192.168.122.254'><lease expiry='5' unit='minutes'/></range>
</dhcp></ip>
<dnsmasq:options>{RELEASE}</dnsmasq:options>
</network>"
    )
}

/// Directories of the host that the daemon sees replaced by its own. The first four contain only the daemon's files.
const PRIVATE: &str = "run etc/libvirt etc/polkit-1/rules.d var/cache/libvirt var/log/libvirt var/lib/libvirt var/lib/swtpm-localca";

/// The script that holds the namespaces. Runs as root. `$0`: the directory. Ends when its input closes, with all processes in the namespaces.
const HOLD: &str = r#"
exec 3<&0
unshare --mount --net --pid --fork --kill-child --mount-proc sh -c "$1" "$0" <&3 &
child=
until [ -n "$child" ] || ! [ -e "/proc/$!" ]; do child=$(cat "/proc/$!/task/$!/children" 2> /dev/null); done
echo "${child% }" > "$0/first.pid"
wait $!
rm -rf -- "${0:?}"
"#;

/// The first process of the namespaces. It has to wait for QEMU's daemonized processes, which are its children: a zombie seems to run.
const FIRST: &str = r#"
set -e
exec 3<&0
for at in @PRIVATE@; do
    mkdir -p "/$at" "$0/$at"
    chown --reference="/$at" "$0/$at"
    chmod --reference="/$at" "$0/$at"
    mount --bind "$0/$at" "/$at"
done
mkdir -p /run/libvirt /run/lock
# Without /dev/kvm, which would be probed for half a minute each time where it cannot be used.
mkdir "$0/dev"
mount -t tmpfs -o mode=755 tmpfs "$0/dev"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$0/dev"
mkdir "$0/dev/pts" "$0/dev/shm" "$0/dev/net"
mknod "$0/dev/net/tun" c 10 200
chmod 666 "$0/dev/net/tun"
ln -s pts/ptmx "$0/dev/ptmx"
ln -s /proc/self/fd "$0/dev/fd"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$0/dev/pts"
mount -t tmpfs tmpfs "$0/dev/shm"
# libvirt moves all that is mounted below /dev, the host's too, though it is not to be seen.
umount --recursive --lazy /dev 2> /dev/null || true
mount --move "$0/dev" /dev
# The bridges of this network; no control groups.
umount -R /sys
mount -t sysfs sysfs /sys
ip link set lo up
: > "$0/ready"
set +e
cat <&3 > /dev/null &
wait $!
"#;

/// Creates the namespaces. Panics, with the reason printed, if that is impossible here.
pub fn namespaces(root: &Path) -> Child {
    for at in PRIVATE.split(' ') {
        fs::create_dir_all(root.join(at)).unwrap();
    }
    let first = FIRST.replace("@PRIVATE@", PRIVATE);
    let mut child = guarded(Command::new("sh").arg("-c").arg(HOLD).arg(root).arg(first));
    until("the namespaces are there", || {
        assert!(child.try_wait().unwrap().is_none(), "the namespaces cannot be made: the lines above say why");
        root.join("ready").exists() && !self::first(root).is_empty()
    });
    child
}

/// A program in the namespaces.
pub fn command(root: &Path, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &first(root), "--mount", "--net", "--pid", "--", program]);
    command
}

/// Connects the network of the namespaces with this machine's network. The link is removed with the namespaces. Its addresses are from a network
/// for benchmarks (RFC 2544), which leads nowhere else.
pub fn join_network(root: &Path) {
    let link = root.file_name().unwrap().to_str().unwrap();
    let here = format!("link add {link} type veth peer name out netns {}\naddress add 198.18.122.1/30 dev {link}\nlink set {link} up\n", first(root));
    let there = "address add 198.18.122.2/30 dev out\nlink set out up\nroute add default via 198.18.122.1\n";
    for (mut ip, lines) in [(Command::new("ip"), here.as_str()), (command(root, "ip"), there)] {
        let file = root.join("link");
        fs::write(&file, lines).unwrap();
        let output = ip.arg("-batch").arg(file).output().unwrap();
        assert!(output.status.success(), "ip: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A listener in the network of the namespaces.
pub fn listen(root: &Path, at: SocketAddr) -> TcpListener {
    let network = fs::File::open(format!("/proc/{}/ns/net", first(root))).unwrap();
    // Only this thread changes its network, and ends there; a socket stays in the network where it was created.
    let listen = move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        TcpListener::bind(at).unwrap()
    };
    thread::spawn(listen).join().unwrap()
}

/// The ID of the first process of the namespaces, as the host sees it.
fn first(root: &Path) -> String {
    fs::read_to_string(root.join("first.pid")).unwrap_or_default().trim().to_owned()
}
