//! Properties of rendering as a whole: what goes in comes out at the other end, the same way each time.

use super::config_drive::{self, Instance};
use super::read::{Payload, iso::Image};
use super::sample::facts;
use super::{paths, render};

#[test]
fn a_guest_reads_what_was_rendered() {
    let facts = facts();
    let bootstrap = render(&facts).unwrap();
    let drive =
        config_drive::build(&Instance { instance_id: "id-1", host_name: facts.host_name.as_ref(), user_data: bootstrap.user_data.as_bytes() });
    let image = Image::open(&drive.0).unwrap();
    assert_eq!(image.label(), "config-2");
    assert_eq!(image.files().unwrap(), [config_drive::META_DATA, config_drive::USER_DATA]);
    let meta: serde_json::Value = serde_json::from_slice(image.read(config_drive::META_DATA).unwrap()).unwrap();
    assert_eq!(meta, serde_json::json!({"uuid": "id-1", "hostname": "win-7k2fq", "name": "win-7k2fq"}));
    let payload = Payload::from_user_data(image.read(config_drive::USER_DATA).unwrap()).unwrap();
    assert_eq!(serde_json::to_value(&payload.plan).unwrap(), serde_json::to_value(&bootstrap.plan).unwrap());
    let join = std::str::from_utf8(payload.file(paths::JOIN_CONFIG).unwrap()).unwrap();
    assert!(join.contains("a1b2c3."), "{join}");
    assert!(payload.file(r"c:\ETC\kubernetes\patches\kubeletconfiguration+strategic.yaml").is_some());
}
