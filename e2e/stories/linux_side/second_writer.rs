//! The part of the story about another writer: CAPW reverts its changes to components, and names a writer that repeats them. CAPW
//! does not write as often as that writer.

use serde_json::json;
use tokio::time::Instant;

use super::{BROUGHT, COMPONENTS, DAEMON_SETS, LIMIT, says, writes_since};
use crate::world::{ControlPlane, Kind, step, text, wait_for};

const IMAGE: &str = "/spec/template/spec/containers/0/image";
const OURS: &str = "registry.example.com/capw:v0";

/// Changes the image, as a person or another controller would.
async fn change(cp: &ControlPlane) {
    let image = json!([{"op": "replace", "path": IMAGE, "value": "stranger.example.com/capw:v0"}]);
    cp.kubectl(&["-n", BROUGHT, "patch", "daemonset", "flannel", "--type=json", "-p", &image.to_string()]).await;
}

async fn image(cp: &ControlPlane) -> String {
    let set = cp.get(DAEMON_SETS, &format!("{BROUGHT}/flannel")).await.expect("the DaemonSet");
    text(&set, IMAGE).to_owned()
}

async fn it_is_set_back(cp: &ControlPlane) {
    wait_for("the DaemonSet has its image again", LIMIT, || async {
        let is = image(cp).await;
        if is == OURS { Ok(()) } else { Err(is) }
    })
    .await;
}

pub async fn it_is_named(cp: &ControlPlane, name: &str) {
    let is_brought = |line: &&String| line.contains(BROUGHT);
    let mark = cp.audit_mark();
    change(cp).await;
    it_is_set_back(cp).await;
    let written = writes_since(cp, mark, 1).await;
    assert_eq!(written.iter().filter(is_brought).count(), 1, "one write fixes it: {written:#?}");
    step("what another has changed is set back");

    let (mark, begin) = (cp.audit_mark(), Instant::now());
    change(cp).await;
    let words = ["DaemonSet capw-windows/flannel, .spec.template.spec.containers[name=\"flannel\"].image", "the field manager kubectl-patch"];
    says(cp, name, COMPONENTS, "FieldManagerConflict", &words).await;
    it_is_set_back(cp).await;
    change(cp).await;
    it_is_set_back(cp).await;
    let most = usize::try_from(begin.elapsed().as_secs() / 10 + 1).expect("a small number");
    let written = writes_since(cp, mark, 2).await.iter().filter(is_brought).count();
    assert!((2..=most).contains(&written), "{written} writes, at most {most}");
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, COMPONENTS, "True", LIMIT).await;
    step("another writer is named, and what it changes is set back once in ten seconds");
}
