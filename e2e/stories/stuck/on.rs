//! Story *why is it stuck* behind simulators of products: the problems that only their drivers can report. The remedy in each message fixes its case.

use std::time::Instant;

use capw::api::name::VmUuid;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::judge::{LIMIT, Told, both_say, everything_goes, hypervisor_says, machine_says, one_machine, told, true_of, unseen_and_ready, until};
use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Forward, Kind, Options, Product, Simulator, free_port, step, text, wait_for};

#[test]
fn why_is_it_stuck_on_vsphere() {
    story("stuck-on-vsphere", Product::Vsphere);
}

#[test]
fn why_is_it_stuck_on_proxmox() {
    story("stuck-on-proxmox", Product::Proxmox);
}

fn story(name: &str, product: Product) {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named(name)).await;
        let capw = Capw::start(&cp, &[]).await;
        let simulator = Simulator::start(product, &cp, &capw, "stuck/lab");
        let site = Site { product, cp: &cp, simulator: &simulator };
        let (_forward, ..) = tokio::join!(
            site.no_answer(),
            site.image_missing(),
            site.network_missing(),
            site.storage_missing(),
            site.storage_full(),
            site.group_missing(),
            site.wrong_authority(),
            site.wrong_password(),
            site.right_missing(),
            site.vm_removed(),
            site.never_joined(),
        );
        assert!(!capw.log().contains(CANARY), "a password is in the log");
        everything_goes(&cp, &capw).await;
        if product == Product::Proxmox {
            assert_eq!(simulator.ask("pve.files()"), json!([]), "configuration drives");
        }
    });
}

/// A wrong password.
const CANARY: &str = "canary-in-a-gold-mine";

/// A simulated product with a WindowsHypervisor for each case, each in its own namespace.
struct Site<'a> {
    product: Product,
    cp: &'a ControlPlane,
    simulator: &'a Simulator,
}

impl Site<'_> {
    /// One machine, in its own folder or pool that does not exist yet.
    async fn homeless(&self, namespace: &str) -> Workers {
        let mut workers = one_machine(namespace, self.cp).await;
        workers.be_made_by(self.simulator);
        let group = match self.product {
            Product::Vsphere => "folder",
            Product::Proxmox => "pool",
        };
        self.settings(&mut workers)[group] = json!(namespace);
        self.log_in(&workers, json!({})).await;
        workers
    }

    async fn one_machine(&self, namespace: &str) -> Workers {
        self.make_group(namespace);
        self.homeless(namespace).await
    }

    fn make_group(&self, name: &str) {
        self.ask(json!({"do": "folder", "name": name}), &format!("pve.pools.update({{'{name}': set()}})"));
    }

    /// The driver's part of a WindowsHypervisor's `spec`.
    fn settings<'w>(&self, workers: &'w mut Workers) -> &'w mut Value {
        &mut workers.driver[self.product.to_string()]
    }

    fn ask(&self, vsphere: Value, proxmox: &str) {
        match self.product {
            Product::Vsphere => self.simulator.ask(&vsphere.to_string()),
            Product::Proxmox => self.simulator.ask(proxmox),
        };
    }

    /// The text for this product.
    fn either<'t>(&self, vsphere: &'t str, proxmox: &'t str) -> &'t str {
        match self.product {
            Product::Vsphere => vsphere,
            Product::Proxmox => proxmox,
        }
    }

    /// Writes the valid login into the Secret, with some values changed.
    async fn log_in(&self, workers: &Workers, changed: Value) {
        let mut login = self.simulator.login(&workers.namespace);
        for (key, value) in changed.as_object().expect("values by key") {
            login["stringData"][key] = value.clone();
        }
        workers.log_in(self.cp, login).await;
    }

    async fn patch(&self, workers: &Workers, spec: Value) {
        let patch = json!({ "spec": spec });
        self.cp.patch(Kind::WINDOWS_HYPERVISOR, &workers.name(&workers.hypervisor), &patch).await.expect("a WindowsHypervisor can be fixed");
    }

    /// Waits until the machine of the case is a node.
    async fn settled(&self, workers: &Workers) {
        workers.wait_settled(self.cp, self.cp, LIMIT).await;
        step(format!("{}: its machine is a node", workers.namespace));
    }

    async fn image_missing(&self) {
        let mut workers = self.one_machine("image").await;
        workers.machine["image"] = json!("windows-server-1999");
        workers.apply(self.cp).await;
        let says = ["WindowsHypervisor lab", self.simulator.server(), "\"windows-server-1999\"", "windows-server-2022", "spec.image of the machine"];
        machine_says(self.cp, &workers, "ImageMissing", &says).await;
        self.ask(json!({"do": "template", "name": "windows-server-1999"}), "pve.image(9020, 'windows-server-1999', 'ceph')");
        self.settled(&workers).await;
    }

    async fn network_missing(&self) {
        let mut workers = self.one_machine("network").await;
        workers.machine["networks"] = json!([{"name": "vlan-114"}]);
        workers.apply(self.cp).await;
        let there = self.either("VM Network", "vmbr1");
        let remedy = self.either("spec.vsphere.network of the WindowsHypervisor", "spec.proxmox.network of the WindowsHypervisor");
        machine_says(self.cp, &workers, "NetworkMissing", &["\"vlan-114\"", there, "spec.networks of the machine", remedy]).await;
        self.patch(&workers, json!({"networks": [{"name": "vlan-114", "is": there}]})).await;
        self.settled(&workers).await;
    }

    async fn storage_missing(&self) {
        let mut workers = self.one_machine("storage").await;
        let (field, right) = (self.either("datastore", "storage"), self.either("LocalDS_0", "ceph"));
        self.settings(&mut workers)[field] = json!("ssd-9");
        workers.apply(self.cp).await;
        let field_of_spec = format!("spec.{}.{field}", self.product);
        both_say(self.cp, &workers, "PlacementMissing", &[&field_of_spec, "\"ssd-9\"", self.either("Correct it", "it has ceph")]).await;
        let mut fixed = json!({});
        fixed[self.product.to_string()][field] = json!(right);
        self.patch(&workers, fixed).await;
        self.settled(&workers).await;
    }

    async fn storage_full(&self) {
        if self.product == Product::Vsphere {
            // The simulator's datastores never run full.
            return;
        }
        let mut workers = self.one_machine("full").await;
        let small = "[pve.add_ceph_storage('small'), pve.storages['small'].update(avail=1), pve.image(9021, 'windows-on-small', 'small')] and None";
        self.simulator.ask(small);
        workers.machine["image"] = json!("windows-on-small");
        workers.apply(self.cp).await;
        let says = ["WindowsHypervisor lab", "'small'", "No space left on device", "Remove machines, add room to the storage"];
        machine_says(self.cp, &workers, "NoCapacity", &says).await;
        self.simulator.ask("pve.storages['small'].pop('avail')");
        self.settled(&workers).await;
    }

    async fn group_missing(&self) {
        let workers = self.homeless("group").await;
        workers.apply(self.cp).await;
        match self.product {
            Product::Vsphere => {
                let says = ["spec.vsphere.folder \"group\"", self.simulator.server(), "/DC0/vm/group", "Correct it"];
                both_say(self.cp, &workers, "PlacementMissing", &says).await;
            }
            Product::Proxmox => {
                machine_says(self.cp, &workers, "PlacementMissing", &["spec.proxmox.pool of the WindowsHypervisor", "'group'", "make the pool"]).await
            }
        }
        self.make_group("group");
        self.settled(&workers).await;
    }

    /// Returns the forwarding to the endpoint: without it the VM could not be removed.
    async fn no_answer(&self) -> Forward {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let mut workers = self.one_machine("no-answer").await;
        let (field, at) = match self.product {
            Product::Vsphere => ("server", json!(address)),
            Product::Proxmox => ("servers", json!([address])),
        };
        self.settings(&mut workers)[field] = at;
        workers.apply(self.cp).await;
        let words = [address.as_str(), "does not answer", "Check address, firewall"];
        both_say(self.cp, &workers, "HypervisorUnreachable", &words).await;
        let forward = Forward::start(port, self.simulator.server()).await;
        self.settled(&workers).await;

        drop(forward);
        hypervisor_says(self.cp, "no-answer", "HypervisorUnreachable", &words).await;
        unseen_and_ready(self.cp, "no-answer", &[&address]).await;
        let forward = Forward::start(port, self.simulator.server()).await;
        true_of(self.cp, Kind::WINDOWS_MACHINE, "no-answer", "VirtualMachineReady").await;
        forward
    }

    async fn wrong_authority(&self) {
        let workers = self.one_machine("authority").await;
        let stranger = rcgen::generate_simple_self_signed(vec!["stranger".to_owned()]).expect("a certificate").cert.pem();
        self.log_in(&workers, json!({"ca.crt": stranger})).await;
        workers.apply(self.cp).await;
        let says = [self.simulator.server(), "is not trusted", "ca.crt in the Secret", "nothing was sent"];
        both_say(self.cp, &workers, "CertificateRejected", &says).await;
        self.log_in(&workers, json!({})).await;
        self.settled(&workers).await;
    }

    async fn wrong_password(&self) {
        let workers = self.one_machine("password").await;
        self.log_in(&workers, json!({"password": CANARY})).await;
        workers.apply(self.cp).await;
        let says = [self.either("the vCenter says", "Proxmox VE says"), "Check username and password", "in the Secret of spec.credentialsRef"];
        both_say(self.cp, &workers, "Unauthorized", &says).await;
        self.log_in(&workers, json!({})).await;
        self.settled(&workers).await;
    }

    async fn right_missing(&self) {
        let workers = self.one_machine("right").await;
        let (vsphere, proxmox) = ("VirtualMachine.Interact.PowerOn", "VM.PowerMgmt");
        let poor = "capw@pve!poor";
        self.ask(json!({"do": "withhold", "folder": "right", "name": vsphere}), &format!("pve.withhold('{poor}', '{proxmox}')"));
        if self.product == Product::Proxmox {
            self.log_in(&workers, json!({"username": poor})).await;
        }
        workers.apply(self.cp).await;
        let lacks = self.either("VirtualMachine.Interact.PowerOn on the folder", "VM.PowerMgmt on /pool/right");
        both_say(self.cp, &workers, "HypervisorPermissionsMissing", &[lacks, "Grant them to their user"]).await;
        self.ask(json!({"do": "grant", "folder": "right"}), &format!("pve.grant('{poor}', '/', '{proxmox}')"));
        self.settled(&workers).await;
    }

    async fn vm_removed(&self) {
        let mut workers = self.one_machine("removed").await;
        // The place where the simulator's administrator expects VMs.
        workers.be_made_by(self.simulator);
        workers.apply(self.cp).await;
        self.settled(&workers).await;
        let machine = self.cp.list(Kind::WINDOWS_MACHINE, Some("removed")).await.pop().expect("its WindowsMachine");
        self.simulator.remove(text(&machine, "/metadata/name"));
        let vm = VmUuid::of(text(&machine, "/metadata/uid")).to_string();
        let removed = Told {
            kind: Kind::WINDOWS_MACHINE,
            condition: ("Ready", "False"),
            reason: "VirtualMachineRemoved",
            says: &[&vm, "WindowsHypervisor lab", "delete the Machine", "MachineHealthCheck"],
        };
        told(self.cp, "removed", Instant::now(), removed).await;
        // The remedy is Cluster API's own.
        let health_check = json!({
            "apiVersion": Kind::MACHINE_HEALTH_CHECK.api_version, "kind": "MachineHealthCheck", "metadata": {"name": "c1", "namespace": "removed"},
            "spec": {
                "clusterName": "c1",
                "selector": {"matchLabels": {"cluster.x-k8s.io/cluster-name": "c1"}},
                "checks": {"unhealthyMachineConditions": [{"type": "InfrastructureReady", "status": "False", "timeoutSeconds": 5}]},
            },
        });
        self.cp.apply_objects(&[health_check]).await;
        let old = text(&machine, "/metadata/name");
        self.cp.wait_gone(Kind::WINDOWS_MACHINE, &workers.name(old), LIMIT).await;
        // The next machine may exceed the check's timeout on a busy machine.
        self.cp.delete(Kind::MACHINE_HEALTH_CHECK, "removed/c1").await;
        self.settled(&workers).await;
    }

    async fn never_joined(&self) {
        let mut workers = self.one_machine("nojoin").await;
        // Long enough for a listing: the message contains what the guest has reported until then.
        workers.machine["joinDeadlineSeconds"] = json!(30);
        workers.machine["image"] = json!("windows-that-hangs");
        workers.apply(self.cp).await;
        let on = wait_for("the VM is switched on", LIMIT, || async {
            let machines = self.cp.list(Kind::WINDOWS_MACHINE, Some("nojoin")).await;
            machines.iter().find_map(|machine| text(machine, "/status/poweredOnAt").parse::<Timestamp>().ok())
        })
        .await;
        let fact = until(on.saturating_add(SignedDuration::from_secs(30)).expect("a time")).await;
        let never = Told {
            kind: Kind::WINDOWS_MACHINE,
            condition: ("NodeJoined", "False"),
            reason: "NodeNeverJoined",
            // The message contains the guest's last report, which shows the step where it hangs.
            says: &["30 s after power on", "last word: ", "hangs at the step the guest last reported", "C:\\ProgramData\\capw", "MachineHealthCheck"],
        };
        told(self.cp, "nojoin", fact, never).await;
    }
}
