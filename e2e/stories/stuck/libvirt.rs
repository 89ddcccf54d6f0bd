//! Story *why is it stuck* behind real libvirt daemons, all but one of them in system mode, with real QEMU VMs: the problems that only a daemon and
//! its host can report. The guests are boot sectors, which never join: a machine is well when its VM runs. The remedy in each message fixes its case.

mod fitness;
mod login;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;

use capw_libvirtd::Daemon;
use serde_json::{Value, json};

use self::login::{BehindTls, login_changed};
use super::judge::{LIMIT, Told, both_say, everything_goes, hypervisor_says, machine_says, one_machine, said, told, unseen_and_ready};
use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, hardware, step, text, wait_for};

#[test]
fn why_is_it_stuck_on_libvirt() {
    world::run(async {
        let Some(steady) = Daemon::start_system() else { return };
        let Some(shaky) = Daemon::start_system() else { return };
        let Some(behind_tls) = BehindTls::start() else { return };
        let daemons = [&steady, &shaky, &behind_tls.daemon];
        let _words = daemons.map(hardware::Words);
        let cp = ControlPlane::start(Options::default().named("stuck-on-libvirt")).await;
        let capw = Capw::start(&cp, &[]).await;
        let (host, other) = (Host { cp: &cp, daemon: &steady }, Host { cp: &cp, daemon: &shaky });
        tokio::join!(
            host.wrong_address(),
            host.no_kvm(),
            host.image_missing(),
            host.image_gone(),
            host.pool_inactive(),
            host.pool_recreated(),
            host.network_inactive(),
            host.bridge_missing(),
            host.disk_full(),
            host.person_at_work(),
            other.daemon_in_trouble(&host, &capw),
            login_changed(&cp, &behind_tls),
        );
        everything_goes(&cp, &capw).await;
        for daemon in daemons {
            assert_eq!((daemon.domains(), daemon.files_of("win-")), (Vec::new(), Vec::new()), "what is left on a host");
        }
    });
}

/// A daemon, with a WindowsHypervisor and a pool for each case. The namespace and the pool have the name of the case.
struct Host<'a> {
    cp: &'a ControlPlane,
    daemon: &'a Daemon,
}

impl Host<'_> {
    async fn one_machine(&self, namespace: &str) -> Workers {
        self.daemon.pool(namespace, hardware::IMAGE);
        self.one_machine_by(namespace, &self.daemon.address()).await
    }

    async fn one_machine_by(&self, namespace: &str, address: &str) -> Workers {
        let mut workers = one_machine(namespace, self.cp).await;
        workers.driver = json!({"libvirt": {"address": address, "pool": namespace, "acceleration": "TCG"}});
        hardware::shrink(&mut workers.machine, &mut workers.bootstrap);
        workers
    }

    /// Runs a shell script as root of the host. `$0` is its argument.
    fn sh(&self, script: &str, argument: &Path) {
        let output = self.daemon.command("sh").args(["-e", "-c", script]).arg(argument).output().expect("nsenter runs");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    async fn machines(&self, namespace: &str) -> Vec<Value> {
        self.cp.list(Kind::WINDOWS_MACHINE, Some(namespace)).await
    }

    /// Waits until exactly the requested machines exist and their VMs run.
    async fn settled(&self, workers: &Workers) {
        let Workers { namespace, replicas, .. } = workers;
        wait_for(&format!("the VMs of {replicas} machines in {namespace} run"), LIMIT, || async {
            let machines = self.machines(namespace).await;
            let is_well = |machine: &Value| {
                let runs = condition(machine, "VirtualMachineReady").is_some_and(|found| found["status"] == "True");
                runs && text(machine, "/metadata/deletionTimestamp").is_empty()
            };
            let is_so = machines.len() == *replicas && machines.iter().all(is_well);
            if is_so { Ok(()) } else { Err(machines.iter().map(|machine| format!("{:#}", machine["status"])).collect::<Vec<_>>().join("\n")) }
        })
        .await;
        step(format!("{namespace}: {replicas} VMs run"));
    }

    /// The domain of the only machine in a namespace.
    async fn vm(&self, namespace: &str) -> String {
        let machine = self.machines(namespace).await.pop().expect("a WindowsMachine");
        self.domains_of(&[machine]).pop().expect("its domain")
    }

    fn domains_of(&self, machines: &[Value]) -> Vec<String> {
        let is_theirs = |domain: &String| machines.iter().any(|machine| domain.starts_with(text(machine, "/metadata/name")));
        self.daemon.domains().into_iter().filter(is_theirs).collect()
    }

    async fn scale(&self, workers: &mut Workers, replicas: usize) {
        workers.replicas = replicas;
        self.cp.apply_objects(&[workers.machine_deployment()]).await;
    }

    /// Expects that the machine whose VM exists reports its problem in all three places.
    async fn vm_says(&self, namespace: &str, reason: &str, says: &[&str]) {
        let says = [&["WindowsHypervisor lab"], says].concat();
        let wrong = Told { kind: Kind::WINDOWS_MACHINE, condition: ("VirtualMachineReady", "False"), reason, says: &says };
        told(self.cp, namespace, Instant::now(), wrong).await;
    }

    /// Expects that a deleted machine waits, and reports why. Returns the machine.
    async fn removal_waits(&self, namespace: &str, says: &[&str]) -> Value {
        let says = [&["the VM cannot be removed while WindowsHypervisor lab is unreachable"], says].concat();
        let waits = Told { kind: Kind::WINDOWS_MACHINE, condition: ("Ready", "False"), reason: "HypervisorUnreachable", says: &says };
        told(self.cp, namespace, Instant::now(), waits).await
    }

    async fn wrong_address(&self) {
        let socket = self.daemon.path("nobody-listens");
        self.daemon.pool("address", hardware::IMAGE);
        let mut workers = self.one_machine_by("address", &self.daemon.address_at(&socket)).await;
        workers.apply(self.cp).await;
        let says = [socket.to_str().expect("a path"), "does not answer", "Check that the daemon runs and that CAPW may open its socket"];
        both_say(self.cp, &workers, "HypervisorUnreachable", &says).await;
        workers.driver["libvirt"]["address"] = json!(self.daemon.address());
        let right = json!({"spec": workers.driver});
        self.cp.patch(Kind::WINDOWS_HYPERVISOR, "address/lab", &right).await.expect("an address can be corrected");
        self.settled(&workers).await;
    }

    async fn image_missing(&self) {
        let mut workers = self.one_machine("image").await;
        workers.machine["image"] = json!("windows-server-1999");
        workers.apply(self.cp).await;
        let address = self.daemon.address();
        let says = ["WindowsHypervisor lab", &address, "\"windows-server-1999\"", hardware::IMAGE, "spec.image of the machine", "virsh vol-upload"];
        machine_says(self.cp, &workers, "ImageMissing", &says).await;
        self.daemon.virsh(["vol-clone", "--pool", "image", hardware::IMAGE, "windows-server-1999"]);
        self.settled(&workers).await;
    }

    /// The file of the image was deleted, which libvirt has not noticed yet.
    async fn image_gone(&self) {
        let workers = self.one_machine("file").await;
        let file = self.daemon.pools().join("file").join(hardware::IMAGE);
        let away = file.with_extension("away");
        fs::rename(&file, &away).expect("a file can be renamed");
        workers.apply(self.cp).await;
        let says = ["WindowsHypervisor lab", file.to_str().expect("a path"), "put it back", "virsh pool-refresh"];
        machine_says(self.cp, &workers, "ImageMissing", &says).await;
        fs::rename(&away, &file).expect("a file can be renamed");
        self.settled(&workers).await;
    }

    async fn pool_inactive(&self) {
        let workers = self.one_machine("pool").await;
        workers.apply(self.cp).await;
        self.settled(&workers).await;
        let vm = self.vm("pool").await;
        self.daemon.virsh(["pool-destroy", "pool"]);
        let says = ["storage pool", "is not active", "virsh pool-start"];
        hypervisor_says(self.cp, "pool", "PlacementMissing", &says).await;
        unseen_and_ready(self.cp, "pool", &says).await;
        // The MachineDeployment then wants another machine, which waits as well.
        let machine = self.cp.list(Kind::MACHINE, Some("pool")).await.pop().expect("a Machine");
        self.cp.delete(Kind::MACHINE, &workers.name(text(&machine, "/metadata/name"))).await;
        let old = self.removal_waits("pool", &says).await;
        assert!(self.daemon.domains().contains(&vm), "{vm} is gone, and its disk cannot be seen");
        self.daemon.virsh(["pool-start", "pool"]);
        self.cp.wait_gone(Kind::WINDOWS_MACHINE, &workers.name(text(&old, "/metadata/name")), LIMIT).await;
        self.settled(&workers).await;
        assert!(!self.daemon.domains().contains(&vm), "{vm} is left");
    }

    /// The files are the same as before, but only a person can decide that.
    async fn pool_recreated(&self) {
        let workers = self.one_machine("again").await;
        workers.apply(self.cp).await;
        self.settled(&workers).await;
        for verb in ["pool-destroy", "pool-undefine"] {
            self.daemon.virsh([verb, "again"]);
        }
        self.daemon.pool_with("again", |_| {});
        let says = ["pool again", "the pool was recreated", "Correct the address", "remove status.endpointID of the WindowsHypervisor"];
        hypervisor_says(self.cp, "again", "EndpointChanged", &says).await;
        unseen_and_ready(self.cp, "again", &says).await;
        self.cp.patch_status(Kind::WINDOWS_HYPERVISOR, "again/lab", &json!({"status": {"endpointID": null}})).await.expect("a status can be edited");
        self.settled(&workers).await;
    }

    async fn network_inactive(&self) {
        let mut workers = self.one_machine("network").await;
        self.daemon.network("vlan-114", "<network><name>vlan-114</name></network>");
        self.daemon.virsh(["net-destroy", "vlan-114"]);
        workers.machine["networks"] = json!([{"name": "vlan-114"}]);
        workers.apply(self.cp).await;
        let says = ["WindowsHypervisor lab", &self.daemon.address(), "\"vlan-114\" is not active", "virsh net-start vlan-114"];
        machine_says(self.cp, &workers, "NetworkMissing", &says).await;
        self.daemon.virsh(["net-start", "vlan-114"]);
        self.settled(&workers).await;
    }

    async fn bridge_missing(&self) {
        let mut workers = self.one_machine("bridge").await;
        workers.machine["networks"] = json!([{"name": "bridge:br9"}]);
        workers.apply(self.cp).await;
        let says = ["WindowsHypervisor lab", &self.daemon.address(), "no bridge \"br9\"", "virbr0", "make the bridge on the host"];
        machine_says(self.cp, &workers, "NetworkMissing", &says).await;
        self.sh("ip link add br9 type bridge; ip link set br9 up", Path::new("/"));
        self.settled(&workers).await;
    }

    /// A full disk prevents the creation of a VM, and stops the VM whose guest writes.
    async fn disk_full(&self) {
        let pool = self.daemon.pool_with("full", |directory| {
            fs::write(directory.join(hardware::IMAGE), capw_libvirtd::writer(16 << 20)).expect("an image can be written");
        });
        // The image is read from the directory that the file system covers, and only its first sector takes space.
        let small =
            "cd \"$0\"; mount -t tmpfs -o size=8m tmpfs \"$0\"; cp --sparse=always ./* \"$0\"; dd if=/dev/zero of=\"$0/films\" status=none || true";
        self.sh(small, &pool);
        let workers = self.one_machine_by("full", &self.daemon.address()).await;
        workers.apply(self.cp).await;
        let says = ["WindowsHypervisor lab", "No space left on device", "Remove machines, or add disk space to the pool"];
        machine_says(self.cp, &workers, "NoCapacity", &says).await;
        self.sh("rm \"$0/films\"", &pool);
        self.vm_says("full", "VirtualMachineHalted", &["the storage of the host is full", "fix the storage, then virsh resume"]).await;
        self.sh("mount -o remount,size=64m \"$0\"", &pool);
        self.daemon.virsh(["resume", &self.vm("full").await]);
        self.settled(&workers).await;
    }

    /// A person suspends, switches off and removes the VM.
    async fn person_at_work(&self) {
        let workers = self.one_machine("person").await;
        workers.apply(self.cp).await;
        self.settled(&workers).await;
        let vm = self.vm("person").await;
        self.daemon.virsh(["suspend", &vm]);
        self.vm_says("person", "VirtualMachineHalted", &["it was paused, but not by CAPW", "virsh resume"]).await;
        self.daemon.virsh(["resume", &vm]);
        self.settled(&workers).await;
        self.daemon.virsh(["destroy", &vm]);
        self.vm_says("person", "VirtualMachineOff", &["is switched off, but not by this controller", "Switch it on, or delete the Machine"]).await;
        self.daemon.virsh(["start", &vm]);
        self.settled(&workers).await;
        let old = self.machines("person").await.pop().expect("a WindowsMachine");
        hardware::remove(self.daemon, text(&old, "/metadata/name"));
        self.vm_says("person", "VirtualMachineRemoved", &["not by CAPW", "delete the Machine", "MachineHealthCheck"]).await;
        let machine = self.cp.list(Kind::MACHINE, Some("person")).await.pop().expect("a Machine");
        self.cp.delete(Kind::MACHINE, &workers.name(text(&machine, "/metadata/name"))).await;
        self.cp.wait_gone(Kind::WINDOWS_MACHINE, &workers.name(text(&old, "/metadata/name")), LIMIT).await;
        self.settled(&workers).await;
        let left = self.daemon.files_of(&vm);
        assert!(left.is_empty(), "the disks of the VM that was removed: {left:?}");
    }

    /// Problems of the daemon itself, one after the other, with one machine or two. Its socket is reached by a link.
    async fn daemon_in_trouble(&self, another: &Host<'_>, capw: &Capw) {
        let link = Link(self.daemon.path("the-daemon"));
        link.to(&self.daemon.socket());
        self.daemon.pool("daemon", hardware::IMAGE);
        let mut workers = self.one_machine_by("daemon", &self.daemon.address_at(&link.0)).await;
        self.out_of_memory(&workers).await;
        self.log_daemon_gone(&mut workers, capw).await;
        self.another_host_answers(&mut workers, &link, another).await;
        self.daemon_hangs(&mut workers).await;
        self.login_wanted(&workers).await;
        self.rights_taken_away(&mut workers, &link).await;
    }

    /// libvirt reads a host's memory from /proc/meminfo, which a file with less memory replaces.
    async fn out_of_memory(&self, workers: &Workers) {
        let file = self.daemon.path("meminfo");
        fs::write(&file, "MemTotal: 8388608 kB\nMemFree: 102400 kB\nBuffers: 0 kB\nCached: 0 kB\n").expect("a file can be written");
        self.sh("mount --bind \"$0\" /proc/meminfo", &file);
        workers.apply(self.cp).await;
        let says = ["WindowsHypervisor lab", "has 100 MiB of memory left", "2048 MiB", "remove machines, or add memory to the host"];
        machine_says(self.cp, workers, "NoCapacity", &says).await;
        self.sh("umount \"$0\"", Path::new("/proc/meminfo"));
        self.settled(workers).await;
    }

    async fn log_daemon_gone(&self, workers: &mut Workers, capw: &Capw) {
        let socket = self.daemon.path("run/libvirt/virtlogd-sock");
        let away = socket.with_extension("away");
        fs::rename(&socket, &away).expect("a socket can be renamed");
        self.scale(workers, 2).await;
        let wrong = Told {
            kind: Kind::WINDOWS_MACHINE,
            condition: ("Ready", "False"),
            reason: "HypervisorFailing",
            says: &["WindowsHypervisor lab, time after time", "virtlogd-sock", "systemctl enable --now virtlogd.socket on the host"],
        };
        let machine = told(self.cp, "daemon", Instant::now(), wrong).await;
        let (_, shown, _) = capw.diagnose(self.cp, &["machine", text(&machine, "/metadata/name"), "-n", "daemon"]).await;
        assert!(shown.contains("F92"), "{shown}");
        fs::rename(&away, &socket).expect("a socket can be renamed");
        self.settled(workers).await;
    }

    /// The daemon ends, a machine is deleted, and another host answers at its address until the daemon is back.
    async fn another_host_answers(&self, workers: &mut Workers, link: &Link, another: &Host<'_>) {
        self.daemon.stop();
        let says = ["libvirt does not answer at", "Check that the daemon runs"];
        hypervisor_says(self.cp, "daemon", "HypervisorUnreachable", &says).await;
        unseen_and_ready(self.cp, "daemon", &says).await;
        self.scale(workers, 1).await;
        let leaving = self.removal_waits("daemon", &says).await;

        another.daemon.pool("daemon", hardware::IMAGE);
        link.to(&another.daemon.socket());
        let says = ["pool daemon", "another host answers", "Correct the address"];
        hypervisor_says(self.cp, "daemon", "EndpointChanged", &says).await;
        let waits = Told {
            kind: Kind::WINDOWS_MACHINE,
            condition: ("Ready", "False"),
            reason: "HypervisorUnreachable",
            says: &["the VM cannot be removed", "another host answers"],
        };
        said(self.cp, "daemon", &waits).await;
        self.daemon.launch();
        let machines = self.machines("daemon").await;
        assert_eq!((machines.len(), self.domains_of(&machines).len()), (2, 2), "a machine was released on the word of another host");
        link.to(&self.daemon.socket());
        self.cp.wait_gone(Kind::WINDOWS_MACHINE, &workers.name(text(&leaving, "/metadata/name")), LIMIT).await;
        self.settled(workers).await;
        assert_eq!(self.daemon.domains().len(), 1, "{:?}", self.daemon.domains());
    }

    /// The daemon accepts connections and answers nothing. The deleted machine's immediate request is abandoned first.
    async fn daemon_hangs(&self, workers: &mut Workers) {
        self.daemon.freeze();
        self.scale(workers, 0).await;
        let says = ["has stopped answering", "restart its daemon (systemctl restart libvirtd"];
        hypervisor_says(self.cp, "daemon", "HypervisorUnreachable", &says).await;
        let waits = Told { kind: Kind::WINDOWS_MACHINE, condition: ("Ready", "False"), reason: "HypervisorUnreachable", says: &says };
        told(self.cp, "daemon", Instant::now(), waits).await;
        self.daemon.thaw();
        self.settled(workers).await;
        assert_eq!(self.daemon.domains(), Vec::<String>::new());
        self.scale(workers, 1).await;
        self.settled(workers).await;
    }

    async fn login_wanted(&self, workers: &Workers) {
        self.daemon.configure("auth_unix_rw = \"sasl\"\n");
        self.daemon.stop();
        self.daemon.launch();
        let says = ["wants a login that CAPW does not have", "auth_unix_rw"];
        hypervisor_says(self.cp, "daemon", "Unauthorized", &says).await;
        unseen_and_ready(self.cp, "daemon", &says).await;
        self.daemon.configure("");
        self.daemon.stop();
        self.daemon.launch();
        self.settled(workers).await;
    }

    /// The link leads to the read-only socket: no machine whose VM it shows is released.
    async fn rights_taken_away(&self, workers: &mut Workers, link: &Link) {
        let mut readers = self.daemon.socket().into_os_string();
        readers.push("-ro");
        self.daemon.stop();
        link.to(Path::new(&readers));
        self.daemon.launch();
        let says = ["read only access prevents", "the socket for reading and writing, not the one that ends in -ro"];
        hypervisor_says(self.cp, "daemon", "HypervisorPermissionsMissing", &says).await;
        unseen_and_ready(self.cp, "daemon", &says).await;
        self.scale(workers, 0).await;
        self.removal_waits("daemon", &says).await;
        assert_eq!(self.daemon.domains().len(), 1, "{:?}", self.daemon.domains());
        self.daemon.stop();
        link.to(&self.daemon.socket());
        self.daemon.launch();
        self.settled(workers).await;
        assert_eq!(self.daemon.domains(), Vec::<String>::new());
    }
}

/// A link to a socket.
struct Link(PathBuf);

impl Link {
    /// Points the link to another socket.
    fn to(&self, socket: &Path) {
        let next = self.0.with_extension("next");
        symlink(socket, &next).expect("a link can be made");
        fs::rename(&next, &self.0).expect("a link can be replaced");
    }
}
