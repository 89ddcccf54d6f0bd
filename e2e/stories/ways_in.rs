//! Story *ways in*: a machine's data reaches Windows through each channel. cloudbase-init's own code reports the data that it reads and its reaction
//! to each of our exit codes. Guests that get their data through each channel join the cluster.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use capw::api::bootstrap_config::{Channel, WindowsBootstrapConfigSpec};
use capw::api::kubernetes_version::KubernetesVersion;
use capw::api::name::{HostName, VmUuid};
use capw::bootstrap::delivery::{Instance, SeedImage, build, config_drive, no_cloud};
use capw::bootstrap::read::Delivered;
use capw::bootstrap::read::iso::Image;
use capw::bootstrap::{BootstrapFacts, ca_hash, render};
use serde_json::{Value, json};

use crate::workers::Workers;
use crate::world::{self, Capw, CloudbaseInit, ControlPlane, Options, text, wait_for};

const CA: &str = include_str!("../../src/bootstrap/sample-ca.pem");

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/image").join(name)
}

fn facts(channel: Channel) -> BootstrapFacts {
    BootstrapFacts {
        machine_uid: "5f0c8a52-9c2e-4ed4-8a5e-3c1b7a1f0001".to_owned(),
        machine_name: "workers-7k2fq".to_owned(),
        generation: 1,
        // Digits and an e: a careless YAML reader takes it for a number.
        host_name: Some(HostName::parse("123e4").expect("a host name")),
        provider_id: None,
        kubernetes: KubernetesVersion::supported("v1.36.3").expect("a version"),
        api_server_minor: None,
        endpoint: "api.example.com:6443".to_owned(),
        ca_pem: CA.to_owned(),
        ca_hash: ca_hash(CA).expect("a CA"),
        token: "abcdef.0123456789abcdef".to_owned().into(),
        cpus: None,
        memory_mib: None,
        cluster_dns: Vec::new(),
        cluster_domain: String::new(),
        pod_networks: Vec::new(),
        service_networks: Vec::new(),
        pods_per_node: None,
        system_disk_gib: None,
        secrets: Default::default(),
        spec: WindowsBootstrapConfigSpec { channel, ..Default::default() },
    }
}

/// The data for one machine, as files for the judge.
struct Given {
    arguments: Vec<Vec<String>>,
    instance_id: String,
    /// The script that cloudbase-init runs.
    script: Vec<u8>,
}

fn given(channel: Channel, directory: &Path) -> Given {
    let facts = facts(channel);
    let user_data = render(&facts).expect("a rendering").user_data.into_bytes();
    let instance = Instance { vm: VmUuid::of("u"), host_name: facts.host_name.as_ref(), user_data: &user_data, answer: &[] };
    let instance_id = instance.id().to_string();
    let path = directory.join(channel.name());
    let with = |flag: &str| vec![flag.to_owned(), path.to_str().expect("a path").to_owned()];
    let mut script = Vec::new();
    let arguments = match SeedImage::from(&build(channel, &instance)) {
        SeedImage::Drive(image) => {
            let name = if channel == Channel::ConfigDrive { config_drive::USER_DATA } else { no_cloud::USER_DATA };
            script = Image::open(&image).expect("an image").read(name).expect("a script").to_vec();
            std::fs::write(&path, image).expect("an image");
            // cloudbase-init ignores the label of a raw disk.
            if channel == Channel::ConfigDrive { vec![with("--cdrom"), with("--disk")] } else { vec![with("--cdrom")] }
        }
        SeedImage::GuestInfo(values) => {
            flate2::read::GzDecoder::new(user_data.as_slice()).read_to_end(&mut script).expect("a gzipped script");
            std::fs::write(&path, json!(values).to_string()).expect("values");
            vec![with("--guestinfo")]
        }
    };
    Given { arguments, instance_id, script }
}

fn bytes(value: &Value, pointer: &str) -> Vec<u8> {
    STANDARD.decode(text(value, pointer)).expect("base64")
}

/// Checks the service that reads each channel, with the host name, the instance and every byte of the script. The script runs with 64-bit PowerShell
/// and leaves nothing in the directory for temporary files.
#[test]
fn cloudbase_init_reads_every_channel() {
    let Some(cloudbase) = CloudbaseInit::ensure() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    for (channel, service) in [
        (Channel::ConfigDrive, "ConfigDriveService"),
        (Channel::NoCloud, "NoCloudConfigDriveService"),
        (Channel::GuestInfo, "VMwareGuestInfoService"),
    ] {
        let Given { arguments, instance_id, script } = given(channel, directory.path());
        for arguments in &arguments {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let said = cloudbase.judge(&sample("cloudbase-init.conf"), &arguments);
            let place = format!("{channel} {}", arguments[0]);
            assert_eq!(text(&said, "/service"), service, "{place}");
            assert_eq!(text(&said, "/instance_id"), instance_id, "{place}");
            assert_eq!(text(&said, "/host_name"), "123e4", "{place}");
            assert!(bytes(&said, "/user_data") == script, "{place}: it reads another user data");
            assert_eq!(said["scripts"].as_array().map(Vec::len), Some(1), "{place}");
            assert!(bytes(&said, "/scripts/0/bytes") == script, "{place}: it runs another script");
            assert_eq!((&said["scripts"][0]["sysnative"], text(&said, "/scripts/0/extension")), (&json!(true), ".ps1"), "{place}");
            // Only CAPW gives accounts, keys and addresses to this machine.
            assert_eq!((&said["password"], &said["keys"], text(&said, "/network")), (&Value::Null, &json!([]), "None"), "{place}");
            assert_eq!(said["left"], json!([]), "{place}");
        }
    }
}

/// Checks cloudbase-init's reaction to our exit codes at each start: `(scripts run, restart)`. The first start gives Windows its name.
#[test]
fn cloudbase_init_does_what_our_exit_codes_ask() {
    let Some(cloudbase) = CloudbaseInit::ensure() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let given = given(Channel::NoCloud, directory.path());
    for (codes, expected) in [
        // Done, or failed and reported: the script never runs again.
        (&[0][..], &[(0, true), (1, false)][..]),
        // The plan requires a restart, and continues after it.
        (&[1003, 0], &[(0, true), (1, true), (1, false)]),
        (&[1003, 1003, 0], &[(0, true), (1, true), (1, true), (1, false)]),
        // The payload could not be unpacked: the script runs again at the next start, whenever that is.
        (&[1002, 0], &[(0, true), (1, false), (1, false)]),
        // Codes that we never return: any failure counts as done, and 1001 drops the rest of the plan.
        (&[1], &[(0, true), (1, false)]),
        (&[1001], &[(0, true), (1, true), (0, false)]),
    ] {
        let codes: Vec<String> = codes.iter().flat_map(|code| ["--exit".to_owned(), code.to_string()]).collect();
        let arguments: Vec<&str> = given.arguments[0].iter().chain(&codes).map(String::as_str).collect();
        let said = cloudbase.judge(&sample("cloudbase-init.conf"), &arguments);
        let starts: Vec<(u64, bool)> = said["starts"]
            .as_array()
            .expect("starts")
            .iter()
            .map(|start| (start["scripts"].as_u64().unwrap_or_default(), start["reboot"] == json!(true)))
            .collect();
        assert_eq!(starts, expected, "{codes:?}");
        assert_eq!(text(&said, "/starts/1/name"), "123e4");
    }
}

/// Checks the configurations that docs/windows-image.md recommends to builders of images.
#[test]
fn cloudbase_init_knows_every_option_of_the_samples() {
    let Some(cloudbase) = CloudbaseInit::ensure() else { return };
    for name in ["cloudbase-init.conf", "cloudbase-init-unattend.conf"] {
        let said = cloudbase.judge(&sample(name), &["--options"]);
        assert_eq!((&said["unknown"], &said["missing"]), (&json!([]), &json!([])), "{name}");
        let values = &said["values"];
        // Our data must not reach a log, a serial port or a file of cloudbase-init; we use the serial port ourselves.
        assert_eq!((&values["debug"], &values["userdata_save_path"]), (&json!(false), &Value::Null), "{name}");
        assert_eq!(values["logging_serial_port_settings"], Value::Null, "{name}");
        // The host name comes before the user data, which waits for it.
        let plugins: Vec<&str> = values["plugins"].as_array().expect("plug-ins").iter().filter_map(Value::as_str).collect();
        let place = |end: &str| plugins.iter().position(|plugin| plugin.ends_with(end));
        assert!(place("SetHostNamePlugin").is_some(), "{name}");
        if name == "cloudbase-init.conf" {
            assert!(place("SetHostNamePlugin") < place("UserDataPlugin") && values["allow_reboot"] == json!(true), "{name}");
        } else {
            assert!(place("UserDataPlugin").is_none() && values["allow_reboot"] == json!(false), "{name}");
        }
    }
}

/// The operator delivers each machine's data through the channel that its configuration names. A guest that finds its data there becomes a Node with
/// the given name.
#[test]
fn machines_join_by_every_channel() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("ways")).await;
        let capw = Capw::start(&cp, &[]).await;
        let mut pools = Vec::new();
        for channel in Channel::ALL {
            let namespace = channel.name().to_lowercase();
            let workers = Workers {
                replicas: 1,
                bootstrap: json!({"channel": channel.name()}),
                // The delay gives the story time to read the seed, which is removed once the node has joined.
                driver: json!({"simulated": {"delays": {"joinMilliseconds": 15_000}}}),
                ..Workers::new(&namespace, &cp).await
            };
            workers.apply(&cp).await;
            pools.push((channel, workers));
        }
        let given = Mutex::new(BTreeMap::new());
        wait_for("every machine is given something", Duration::from_secs(120), || async {
            let mut given = given.lock().expect("what was seen");
            for (channel, workers) in &pools {
                if let [seed] = seeds(capw.state(), &workers.namespace).as_slice() {
                    given.insert(channel.name(), seed.clone());
                }
            }
            if given.len() == pools.len() { Ok(()) } else { Err(format!("only {:?}", given.keys())) }
        })
        .await;
        let given = given.into_inner().expect("what was seen");
        for (channel, workers) in pools {
            let seed = &given[channel.name()];
            let machines = workers.wait_settled(&cp, &cp, Duration::from_secs(120)).await;
            let node = text(&machines[0], "/status/nodeRef/name");
            let delivered = Delivered::of(seed).expect("what a guest can read");
            assert_eq!((delivered.channel, delivered.host_name.as_deref()), (channel, Some(node)));
            wait_for("what the machine was given is taken away", Duration::from_secs(60), || async {
                let left = seeds(capw.state(), &workers.namespace).len();
                if left == 0 { Ok(()) } else { Err(format!("{channel}: {left} machines still have it")) }
            })
            .await;
        }
    });
}

/// Returns the seeds of the machines on a simulated hypervisor in that namespace.
fn seeds(state: &Path, namespace: &str) -> Vec<SeedImage> {
    let homes = std::fs::read_dir(state.join(format!("{namespace}.lab"))).into_iter().flatten().filter_map(Result::ok);
    let seed = |home: PathBuf| match std::fs::read(home.join("config-drive.iso")) {
        Ok(image) => Some(SeedImage::Drive(image)),
        Err(_) => {
            std::fs::read(home.join("guestinfo.json")).ok().map(|values| SeedImage::GuestInfo(serde_json::from_slice(&values).expect("values")))
        }
    };
    homes.filter_map(|home| seed(home.path())).collect()
}
