//! The log lines of the Windows programs of Kubernetes that indicate a problem. Each is a fault of their configuration, except for the known lines
//! below.

use std::sync::LazyLock;

use regex::RegexSet;

/// Texts that mark a fault in a line of any level.
const FAULTS: [&str; 6] = [
    "Using lenient decoding as strict decoding failed",
    "unknown flag",
    "has been deprecated",
    "not supported on Windows",
    "Flag --",
    "unknown field",
];

/// Warnings and errors that our configuration cannot avoid: a pattern, and the reason.
const KNOWN: [(&str, &str); 20] = [
    (r#""command failed" err="failed to run Kubelet: unable to load bootstrap kubeconfig: "#, "the matrix has no cluster to join"),
    (r"hnsCall|HNS endpoints", "Wine has no Host Network Service"),
    (r"Windows kernel is not compatible for Kernel mode", "Wine has no Host Network Service for kube-proxy either"),
    (r"Could not access config of service kubelet: Invalid level", "Wine's service manager knows no time before a shutdown"),
    (r"Windows system assumed buffer larger than it is", "Wine reports changes of a directory without saying which, when there are many"),
    (r"SetRLimit unsupported|Watching source file is unsupported", "the kubelet says so on every Windows"),
    (r"checkpoint is not found", "a kubelet that starts for the first time has none"),
    (r#"container runtime status check may not have completed yet"|PLEG is not healthy: pleg has yet to be successful"#, "its first seconds"),
    (r#"nodes? \\?"[^"\\]+\\?" not found"#, "the Node is not there before the kubelet has registered it"),
    (r#"User \\"system:anonymous\\""#, "it asks before it has its certificate"),
    (r"use of closed network connection|connection force closed via ClientConn\.Close", "it closes its connections when it has its certificate"),
    (
        r"Unable to write event \(may retry after sleeping\).*http2: server sent GOAWAY and closed the connection",
        "an API server may close a connection at any time; the kubelet sends the event again",
    ),
    (
        r"(https://127\.0\.0\.1:\d+/.*|Error updating node status, will retry.*)(?i:timeout|deadline)|Timeout: request did not complete within",
        "this host is busy: the API server's answer comes late",
    ),
    (r"Housekeeping took longer than expected", "this host is busy: the kubelet's own work takes more than a second"),
    (r"Image garbage collection failed once", "how full this host's disk is"),
    (r"\[WARNING SystemVerification\]: kernel release  is unsupported", "Wine does not tell kubeadm its release"),
    (r"\[WARNING Service-kubelet\]: kubelet service is not enabled", "the plan lets it start with Windows only when it has joined"),
    (r#"configmaps "kube-proxy" not found"#, "the clusters of the stories have no kube-proxy of kubeadm"),
    (r"the provided value is: /etc/kubernetes/pki/ca.crt", "kubeadm makes paths of Windows out of the cluster's by itself"),
    (r"nodePortAddresses is unset; NodePort connections", "kube-proxy does not read the field on Windows: node ports are served on all addresses"),
];

/// Fails if a program logged a fault of its configuration.
pub fn faultless(log: &str) {
    let faults = faults(log);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn faults(log: &str) -> Vec<&str> {
    static KNOWN_LINES: LazyLock<RegexSet> = LazyLock::new(|| RegexSet::new(KNOWN.map(|(pattern, _)| pattern)).expect("patterns"));
    let wrong = |line: &&str| FAULTS.iter().any(|words| line.contains(words)) || (is_loud(line) && !KNOWN_LINES.is_match(line));
    log.lines().filter(wrong).collect()
}

/// Whether a line is a warning, an error or a fatal message, in klog's form (a letter, month and day) or in kubeadm's.
fn is_loud(line: &str) -> bool {
    if ["[WARNING ", "[ERROR "].iter().any(|mark| line.trim_start().starts_with(mark)) {
        return true;
    }
    let digits = line.get(1..5).is_some_and(|date| date.bytes().all(|byte| byte.is_ascii_digit()));
    digits && line.starts_with(['W', 'E', 'F'])
}

#[test]
fn every_warning_is_a_fault_but_those_that_are_known() {
    let known = r#"I1121 15:14:20.104511    3412 server.go:533] "Kubelet version" kubeletVersion="v1.36.3"
E1121 15:36:02.113300     256 kubelet.go:3516] "Unable to register mirror pod because node is not registered yet" err="node \"win-4zqqb\" not found" node="win-4zqqb"
E1121 15:36:02.113300     256 server.go:1281] "Failed to set rlimit on max file handles" err="SetRLimit unsupported in this platform"
E1122 01:49:19.457372     836 csi_plugin.go:399] Failed to initialize CSINode: error updating CSINode annotation: timed out waiting for the condition; caused by: nodes "win-q4gfq" not found
E1126 10:39:16.726357     968 event.go:368] "Unable to write event (may retry after sleeping)" err="Patch \"https://127.0.0.1:25522/api/v1/namespaces/default/events/win-g2h52.18eb922333a5e780\": http2: client connection force closed via ClientConn.Close"
E1129 12:41:07.118201     968 event.go:368] "Unable to write event (may retry after sleeping)" err="Post \"https://127.0.0.1:25522/api/v1/namespaces/default/events\": http2: server sent GOAWAY and closed the connection; LastStreamID=111, ErrCode=NO_ERROR, debug=\"\""
[kubelet-start] Starting the kubelet"#;
    assert_eq!(faults(known), [""; 0]);
    for fault in [
        r#"E1121 15:36:02.113300     256 file.go:97] "Unable to read config path" err="path does not exist, ignoring" path="C:\\etc\\kubernetes\\manifests""#,
        r"W1121 15:36:02.113300     256 probe.go:275] Flexvolume plugin directory at /usr/libexec/x/ does not exist. Recreating.",
        "F1121 15:36:02.113300     256 server.go:1] what nobody has said yet",
        "Flag --pod-infra-container-image has been deprecated, will be removed in a future release",
        "I1121 15:36:02.113300     256 server.go:1] Using lenient decoding as strict decoding failed",
        "\t[WARNING Hostname]: hostname could not be reached",
    ] {
        assert_eq!(faults(&format!("{known}\n{fault}")), [fault]);
    }
}
