//! Story *doctor*: guests that give up, a guest that never reports, and a Node that is not Ready. `kubectl get` shows step and message, the
//! conditions cause and remedy; `capw diagnose` agrees and needs only its kubeconfig's rights. Nothing is written repeatedly; a MachineHealthCheck
//! replaces such a machine. `capw status` shows what hangs, or that all is well. The commands come from docs/troubleshooting.md.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

mod to_mirror;

use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, step, text, wait_for};

/// The limit until a guest has given up, after three tries, and every place reports it.
const TOLD: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(120);
/// The exit code of `capw diagnose` when it finds a problem.
pub const FOUND: i32 = 3;

/// A fault, and how it is reported: reason of the conditions, rule or code, step, text from the guest, text of the remedy.
struct Case {
    namespace: &'static str,
    fault: &'static str,
    reason: &'static str,
    finding: &'static str,
    step: &'static str,
    says: &'static str,
    remedy: &'static str,
}

const CASES: [Case; 10] = [
    Case {
        namespace: "feature",
        fault: "FeatureMissing",
        reason: "WindowsSetupFailed",
        finding: "code 21",
        step: "containers-feature",
        says: "source files could not be found",
        remedy: "Install the feature Containers in the image",
    },
    Case {
        namespace: "token-unknown",
        fault: "TokenExpired",
        reason: "JoinFailed",
        finding: "F45",
        step: "join",
        says: "JWS signature",
        remedy: "JoinCredentialValid",
    },
    Case {
        namespace: "program",
        fault: "ProgramMissing",
        reason: "ProgramsUnavailable",
        finding: "code 41",
        step: "program-kubelet",
        says: r"C:\k\kubelet.exe, found none",
        remedy: "image-builder",
    },
    // No injected fault: the image has another release than the plan.
    Case {
        namespace: "release",
        fault: "",
        reason: "WindowsSetupFailed",
        finding: "code 20",
        step: "identity",
        says: "expected Windows Server of build 20348",
        remedy: "spec.windowsRelease",
    },
    Case { namespace: "disk", fault: "DiskFull", reason: "", finding: "F26", step: "", says: "not enough space", remedy: "larger systemDisk" },
    Case {
        namespace: "runtime",
        fault: "RuntimeBroken",
        reason: "ContainerRuntimeFailed",
        finding: "code 52",
        step: "containerd-running",
        says: "Failed to start service",
        remedy: "containerd.log",
    },
    Case {
        namespace: "clock",
        fault: "ClockWrong",
        reason: "NodeNetworkFailed",
        finding: "code 31",
        step: "clock",
        says: "expected a clock within",
        remedy: "spec.network.timeServers",
    },
    Case {
        namespace: "authority",
        fault: "ClusterUnknown",
        reason: "JoinFailed",
        finding: "F44",
        step: "join",
        says: "none of the public keys",
        remedy: "compare the CA with the one in kube-public/cluster-info",
    },
    Case {
        namespace: "name-taken",
        fault: "NameTaken",
        reason: "JoinFailed",
        finding: "F09",
        step: "join",
        says: "already exists in the cluster",
        remedy: "Generalize the image with sysprep",
    },
    Case {
        namespace: "kubelet-down",
        fault: "KubeletBroken",
        reason: "JoinFailed",
        finding: "F40",
        step: "join",
        says: "failed while waiting for the kubelet to start",
        remedy: "kubelet.log",
    },
];

/// Returns all cases in the profile `judge`, and otherwise the first four.
fn cases() -> &'static [Case] {
    if world::is_judge() { &CASES } else { &CASES[..4] }
}

#[test]
fn the_doctor_says_why_guests_gave_up() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("doctor")).await;
        let capw = Capw::start(&cp, &[]).await;
        tokio::join!(silent(&cp, &capw), futures::future::join_all(cases().iter().map(|case| gave_up(&cp, &capw, case))));
        let healthy = one_machine("healthy", &cp).await;
        healthy.apply(&cp).await;
        healthy.wait_settled(&cp, &cp, LIMIT).await;
        tokio::join!(finished(&cp, &capw), silent_at_rest(&cp, &capw), commands_of_the_page(&cp, &capw));
        not_ready(&cp, &capw).await;
        replaced(&cp).await;
        assert!(!capw.log().contains("panicked"), "{}", capw.process().log_end());
    });
}

async fn one_machine(namespace: &str, cp: &ControlPlane) -> Workers {
    Workers { replicas: 1, ..Workers::new(namespace, cp).await }
}

async fn only(cp: &ControlPlane, namespace: &str) -> Option<Value> {
    cp.list(Kind::WINDOWS_MACHINE, Some(namespace)).await.into_iter().next()
}

/// Checks that the condition, the column and `capw diagnose` agree.
async fn gave_up(cp: &ControlPlane, capw: &Capw, case: &Case) {
    let mut workers = one_machine(case.namespace, cp).await;
    if case.fault.is_empty() {
        workers.machine["image"] = json!("windows-server-2019");
    } else {
        workers.driver = json!({"simulated": {"faults": [{"names": "*", "fault": case.fault}]}});
    }
    workers.apply(cp).await;
    let machine = wait_for(&format!("{}: the guest has given up", case.namespace), TOLD, || async {
        let machine = only(cp, case.namespace).await.ok_or("no machine")?;
        let failed = text(&machine, "/status/bootstrap/state") == "failed";
        if failed { Ok(machine) } else { Err(format!("{:#}", machine["status"])) }
    })
    .await;
    let name = text(&machine, "/metadata/name");
    let code = machine["status"]["bootstrap"]["code"].as_i64().expect("a code");
    assert!(text(&machine, "/status/bootstrap/message").contains(case.says), "{:#}", machine["status"]["bootstrap"]);
    assert!(case.step.is_empty() || text(&machine, "/status/bootstrap/item") == case.step, "{:#}", machine["status"]["bootstrap"]);
    for kind in ["Ready", "NodeJoined"] {
        let found = condition(&machine, kind).expect("the condition");
        assert_eq!(found["status"], "False", "{found:#}");
        assert!(case.reason.is_empty() || found["reason"] == case.reason, "{found:#}");
        for part in [case.says, case.remedy, case.finding, &format!("code {code}")] {
            assert!(text(found, "/message").contains(part), "{part}: {found:#}");
        }
    }
    let table = cp.kubectl(&["-n", case.namespace, "get", "windowsmachines", "-o", "wide"]).await;
    assert!(table.contains(text(&machine, "/status/bootstrap/item")) && table.contains(case.says), "{table}");
    // Core copies it to the Machine, where a MachineHealthCheck reads it.
    wait_for(&format!("{}: the Machine says it", case.namespace), TOLD, || async {
        let machines = cp.list(Kind::MACHINE, Some(case.namespace)).await;
        let told = machines.iter().any(|machine| condition(machine, "InfrastructureReady").is_some_and(|found| found["status"] == "False"));
        if told { Ok(()) } else { Err(format!("{machines:#?}")) }
    })
    .await;
    let (exit, answer, _) = capw.diagnose(cp, &["machine", name, "-n", case.namespace, "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
    assert_eq!((exit, &answer["findings"][0]["id"]), (FOUND, &json!(case.finding)), "{answer:#}");
    assert!(text(&answer, "/findings/0/remedy").contains(case.remedy) && answer.get("notLookedAt").is_none(), "{answer:#}");
    // `capw diagnose` also takes the name of the Machine and prints text for people.
    let machines = cp.list(Kind::MACHINE, Some(case.namespace)).await;
    let (_, shown, _) = capw.diagnose(cp, &["machine", text(&machines[0], "/metadata/name"), "-n", case.namespace]).await;
    for part in [&format!("1. {} ", case.finding), case.says, "   cause   ", "   remedy  "] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    step(format!("{} is told as {}", case.namespace, case.finding));
}

/// Nothing runs in the VM: after the deadline for its Node, the condition reports what that usually means.
async fn silent(cp: &ControlPlane, capw: &Capw) {
    let mut workers = one_machine("silent", cp).await;
    workers.machine["joinDeadlineSeconds"] = json!(10);
    workers.driver = json!({"simulated": {"faults": [{"names": "*", "fault": "NoBoot"}]}});
    workers.apply(cp).await;
    let machine = wait_for("the machine says that it never joined", TOLD, || async {
        let machine = only(cp, "silent").await.ok_or("no machine")?;
        let never = condition(&machine, "NodeJoined").is_some_and(|joined| joined["reason"] == "NodeNeverJoined");
        if never { Ok(machine) } else { Err(format!("{:#}", machine["status"])) }
    })
    .await;
    let told = text(condition(&machine, "NodeJoined").expect("the condition"), "/message");
    for part in ["10 s after power on", "cloudbase-init is not in the image", "whose plugins name UserDataPlugin", "(F01)", "MachineHealthCheck"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(machine["status"].get("bootstrap").is_none(), "{:#}", machine["status"]);
    let (exit, shown, _) = capw.diagnose(cp, &["machine", text(&machine, "/metadata/name"), "-n", "silent"]).await;
    assert!(exit == FOUND && shown.contains("1. F01 "), "{shown}");
    step("a guest that never said a word is told as F01");
}

/// The Node of a machine that has joined is not Ready. Core copies that to the Machine, and NodeJoined adds the cause without a change of its own
/// status.
async fn not_ready(cp: &ControlPlane, capw: &Capw) {
    let machine = only(cp, "healthy").await.expect("the machine");
    let before = condition(&machine, "NodeJoined").expect("the condition").clone();
    let node = text(&machine, "/status/hostName").to_owned();
    assert_eq!((text(&before, "/status"), text(&before, "/message")), ("True", format!("Node {node}").as_str()));
    let minutes_ago = Timestamp::now().checked_sub(SignedDuration::from_mins(5)).expect("a time");
    let words = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized";
    let broken = json!({"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": words, "lastTransitionTime": minutes_ago});
    let told = |words: &'static str| {
        let (node, broken) = (&node, &broken);
        async move {
            let machine = only(cp, "healthy").await.ok_or("no machine")?;
            let joined = condition(&machine, "NodeJoined").ok_or("no condition")?.clone();
            if text(&joined, "/message") == format!("Node {node}{words}") || (!words.is_empty() && text(&joined, "/message").contains(words)) {
                return Ok(joined);
            }
            if !words.is_empty() {
                // The guest's kubelet periodically reports that the Node is Ready.
                set_ready(cp, node, broken).await;
            }
            Err(format!("{joined:#}"))
        }
    };
    let joined = wait_for("NodeJoined says why the Node is not Ready", TOLD, || told("; it is not Ready: ")).await;
    for part in ["No network plug-in for Windows is installed", r"must be in C:\etc\cni\net.d", "(F60)"] {
        assert!(text(&joined, "/message").contains(part), "{part}: {joined:#}");
    }
    for field in ["status", "reason", "lastTransitionTime"] {
        assert_eq!(joined[field], before[field], "{field}: {joined:#}");
    }
    let (exit, shown, _) = capw.diagnose(cp, &["machine", text(&machine, "/metadata/name"), "-n", "healthy"]).await;
    assert!(exit == FOUND && shown.contains("1. F60 "), "{shown}");
    wait_for("capw status says it of the machine", TOLD, || async {
        set_ready(cp, &node, &broken).await;
        let (exit, shown, errors) = capw.ask(cp, &["status", "-n", "healthy"]).await;
        let is_told = exit == FOUND && shown.starts_with("1 object hangs.") && shown.contains("hangs for") && shown.contains("(F60)");
        if is_told { Ok(()) } else { Err(format!("{exit}: {shown}{errors}")) }
    })
    .await;
    let well = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastTransitionTime": Timestamp::now()});
    set_ready(cp, &node, &well).await;
    let joined = wait_for("NodeJoined says no more than before", TOLD, || told("")).await;
    assert_eq!(joined, before);
    wait_for("capw status says that all is well", TOLD, || async {
        let (exit, shown, errors) = capw.ask(cp, &["status", "-n", "healthy"]).await;
        let is_well = exit == 0 && shown.starts_with("All is well.") && shown.contains("1 of 1 ready");
        if is_well { Ok(()) } else { Err(format!("{exit}: {shown}{errors}")) }
    })
    .await;
    step("a Node that is not Ready is told as F60, while it is so");
}

/// Sets this condition in the Node's status, unless it is set already.
async fn set_ready(cp: &ControlPlane, node: &str, ready: &Value) {
    let found = cp.get(Kind::NODE, node).await.expect("the Node");
    let mut conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    if condition(&found, "Ready").is_some_and(|is| is["status"] == ready["status"]) {
        return;
    }
    conditions.retain(|condition| condition["type"] != "Ready");
    conditions.push(ready.clone());
    cp.patch_status(Kind::NODE, node, &json!({"status": {"conditions": conditions}})).await.expect("the Node's status can be written");
}

/// A healthy machine: its guest reports that, and diagnose finds nothing.
async fn finished(cp: &ControlPlane, capw: &Capw) {
    let machine = wait_for("the healthy guest has finished", TOLD, || async {
        let machine = only(cp, "healthy").await.ok_or("no machine")?;
        if text(&machine, "/status/bootstrap/state") == "finished" { Ok(machine) } else { Err(format!("{:#}", machine["status"])) }
    })
    .await;
    let name = text(&machine, "/metadata/name");
    let (exit, answer, errors) = capw.diagnose(cp, &["machine", name, "-n", "healthy"]).await;
    assert!(exit == 0 && answer.contains("Nothing known to be wrong was found."), "{answer}{errors}");
    let (exit, _, errors) = capw.diagnose(cp, &["machine", "nobody", "-n", "healthy"]).await;
    assert!(exit == 1 && errors.contains("there is no WindowsMachine nobody in namespace healthy"), "{errors}");
    to_mirror::lists(cp, capw).await;
}

/// Checks that CAPW reports everything once: no object gets another version.
async fn silent_at_rest(cp: &ControlPlane, capw: &Capw) {
    let versions = || async {
        let mut versions = BTreeMap::new();
        for case in cases() {
            let machine = only(cp, case.namespace).await.expect("the machine");
            versions.insert(case.namespace, text(&machine, "/metadata/resourceVersion").to_owned());
        }
        versions
    };
    // Each listing of the hypervisor triggers a check, so the test waits for two listings of each hypervisor.
    let listings = || {
        let of = |case: &Case| capw.metric("capw_hypervisor_calls_total", &["call=\"list\"", &format!("endpoint=\"{}/lab\"", case.namespace)]);
        cases().iter().map(of).collect::<Vec<_>>()
    };
    // Guests may still send their last reports, so the test waits until the writes end.
    let seen = RefCell::new((versions().await, listings()));
    wait_for("every hypervisor is listed twice more, and no machine whose guest has given up is written", LIMIT, || async {
        let (before, start) = seen.borrow().clone();
        let (versions, now) = (versions().await, listings());
        if versions != before {
            *seen.borrow_mut() = (versions.clone(), now);
            return Err(format!("written: {before:?}, now {versions:?}"));
        }
        if start.iter().zip(&now).all(|(start, now)| *now >= start + 2.0) { Ok(()) } else { Err(format!("{start:?}, now {now:?}")) }
    })
    .await;
}

/// Runs the page's commands in order, for the machine with the unknown token.
async fn commands_of_the_page(cp: &ControlPlane, capw: &Capw) {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/troubleshooting.md")).expect("the page");
    let blocks: Vec<&str> = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let machine = only(cp, "token-unknown").await.expect("the machine");
    let name = text(&machine, "/metadata/name");
    let logs = cp.directory().join("collected");
    std::fs::create_dir_all(&logs).expect("a directory");
    let fault = "x509: certificate has expired or is not yet valid\n";
    for file in ["bootstrap.log", "kubelet.log", "containerd.log"] {
        std::fs::write(logs.join(file), fault).expect("a log");
    }
    // In the format of collect.ps1.
    std::fs::write(logs.join("collected.log"), format!("==> C:\\var\\log\\kubelet\\kubelet.log <==\r\n{fault}")).expect("a log");
    let commands: Vec<String> =
        blocks.iter().flat_map(|block| block.lines()).map(|line| line.replace("NAMESPACE", "token-unknown").replace("MACHINE", name)).collect();
    assert!(commands.len() >= 6, "{commands:?}");
    for command in &commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words.as_slice() {
            // A deletion would recreate the machine, so it is a dry run. The MachineHealthCheck runs later.
            ["kubectl", rest @ ..] if rest.contains(&"delete") => {
                let dry: Vec<&str> = rest.iter().copied().chain(["--dry-run=server"]).collect();
                assert!(cp.kubectl(&dry).await.contains("deleted"), "{command}");
            }
            ["kubectl", rest @ ..] => assert!(cp.kubectl(rest).await.contains("join"), "{command}"),
            ["capw", "diagnose", "logs", files @ ..] => {
                let paths: Vec<String> = files.iter().map(|file| logs.join(file).display().to_string()).collect();
                let arguments: Vec<&str> = ["logs"].into_iter().chain(paths.iter().map(String::as_str)).collect();
                let (exit, answer, errors) = capw.diagnose(cp, &arguments).await;
                assert!(exit == FOUND && answer.contains("F44"), "{command}: {answer}{errors}");
            }
            ["capw", "status", rest @ ..] => {
                let (exit, answer, errors) = capw.ask(cp, &[&["status"], rest].concat()).await;
                assert!(exit == FOUND && answer.contains("JoinFailed") && answer.contains(name), "{command}: {answer}{errors}");
            }
            ["capw", "diagnose", rest @ ..] => {
                let (exit, answer, errors) = capw.diagnose(cp, rest).await;
                assert!(exit == FOUND && answer.contains("F45"), "{command}: {answer}{errors}");
            }
            other => panic!("docs/troubleshooting.md: who runs {other:?}?"),
        }
    }
}

/// Applies the MachineHealthCheck of docs/conditions.md with shorter timeouts: the machine is replaced.
async fn replaced(cp: &ControlPlane) {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/conditions.md")).expect("the page");
    let yaml = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a MachineHealthCheck");
    let mut check: Value = serde_saphyr::from_str(yaml).expect("YAML");
    let machines = cp.list(Kind::MACHINE, Some("token-unknown")).await;
    let (old, labels) = (text(&machines[0], "/metadata/name").to_owned(), &machines[0]["metadata"]["labels"]);
    check["metadata"]["namespace"] = json!("token-unknown");
    check["spec"]["clusterName"] = labels["cluster.x-k8s.io/cluster-name"].clone();
    check["spec"]["selector"]["matchLabels"]["cluster.x-k8s.io/deployment-name"] = labels["cluster.x-k8s.io/deployment-name"].clone();
    check["spec"]["checks"]["unhealthyMachineConditions"][0]["timeoutSeconds"] = json!(5);
    cp.apply_objects(&[check]).await;
    wait_for("the MachineHealthCheck has replaced the machine", LIMIT, || async {
        let names: Vec<String> = cp.list(Kind::MACHINE, Some("token-unknown")).await.iter().map(|m| text(m, "/metadata/name").to_owned()).collect();
        let gone = !names.contains(&old) && !names.is_empty();
        if gone { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    step("the MachineHealthCheck has replaced a machine whose guest had given up");
}
