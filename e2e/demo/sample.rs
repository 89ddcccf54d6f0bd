//! The README's YAML, as the demo applies it.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "the sample is a part of this program")]

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{hardware, text};

const SAMPLE: &str = include_str!("../../config/samples/three-nodes.yaml");
/// The limit for a real Windows to start, install what a node needs and join; without KVM most of it is used.
pub const LONG: Duration = Duration::from_secs(2 * 60 * 60);
/// The join deadline of such a machine, and the lifetime of its token: the demo gives up before the machine is reported as late.
const PATIENCE: Duration = LONG.saturating_add(Duration::from_secs(60 * 60));

/// Renders the sample for this version of Kubernetes; on the simulated hypervisor, or on real ones.
pub fn render(version: &str, real: Option<&Real>) -> String {
    let sample = SAMPLE.replace("v1.36.3", version);
    let Some(real) = real else { return sample };
    let (mut machine, mut bootstrap) = (json!({}), json!({"kubelet": {}}));
    hardware::shrink(&mut machine, &mut bootstrap);
    if let Some(firmware) = real.own {
        machine = json!({
            "image": hardware::IMAGE, "cpus": 2, "memory": "4Gi", "firmware": {"type": firmware}, "joinDeadlineSeconds": PATIENCE.as_secs(),
        });
        bootstrap["join"] = json!({"tokenMaxAgeSeconds": PATIENCE.as_secs()});
    }
    let documents = sample.split("---\n").map(|document| {
        let mut object: Value = serde_saphyr::from_str(document).expect("the sample is YAML");
        match text(&object, "/kind") {
            "WindowsHypervisor" => object["spec"] = real.hypervisor.clone(),
            "MachineDeployment" if real.own.is_some() => object["spec"]["replicas"] = json!(1),
            "WindowsMachineTemplate" => object["spec"]["template"]["spec"] = machine.clone(),
            "WindowsBootstrapConfigTemplate" => json_patch::merge(&mut object["spec"]["template"]["spec"], &bootstrap),
            _ => {}
        }
        // JSON is YAML.
        format!("{object}\n")
    });
    documents.collect::<Vec<_>>().join("---\n")
}

/// The settings for real VMs.
pub struct Real {
    /// `spec` of the WindowsHypervisor.
    pub hypervisor: Value,
    /// `firmware.type` of the user's image, for one machine; `None`: all machines use the Linux that stands for Windows.
    pub own: Option<&'static str>,
}

#[cfg(test)]
mod tests {
    use capw::api::bootstrap_config::WindowsBootstrapConfigSpec;
    use capw::api::machine::WindowsMachineSpec;
    use serde::de::DeserializeOwned;

    use super::super::late::{Guests, Step};
    use super::*;

    /// `spec` of the objects that the template of a kind creates.
    fn template<T: DeserializeOwned>(rendered: &str, kind: &str) -> T {
        let objects = rendered.split("---\n").map(|document| serde_saphyr::from_str(document).expect("YAML"));
        let object: Value = objects.into_iter().find(|object| text(object, "/kind") == kind).expect("a template");
        serde_json::from_value(object["spec"]["template"]["spec"].clone()).expect("a specification")
    }

    #[test]
    fn a_windows_that_qemu_translates_may_take_longer_than_the_demo_waits() {
        let real = |own| Real { hypervisor: json!({"libvirt": {}}), own };
        let rendered = render("v1.36.3", Some(&real(Some("UEFI"))));
        let machine: WindowsMachineSpec = template(&rendered, "WindowsMachineTemplate");
        let bootstrap: WindowsBootstrapConfigSpec = template(&rendered, "WindowsBootstrapConfigTemplate");
        let demo = i64::try_from(LONG.as_secs()).expect("seconds");
        for allowed in [machine.join_deadline_seconds, bootstrap.join.token_max_age_seconds] {
            assert!(allowed > demo, "{allowed} s, and the demo waits {demo} s: {rendered}");
        }
        assert!(Step::Join.limit(Guests::Translated).expect("a limit") < LONG, "it is told as late before the demo gives up");
        assert_eq!(bootstrap.kubelet.node_labels["example.com/pool"], "windows", "the sample's own settings stay");

        let small: WindowsMachineSpec = template(&render("v1.36.3", Some(&real(None))), "WindowsMachineTemplate");
        assert_eq!(small.join_deadline_seconds, 2_700, "small guests are called late when they are");
    }
}
