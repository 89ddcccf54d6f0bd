//! The kubelet's flags: what has no field in its configuration, and the users' own. Nothing on Windows reads
//! kubeadm-flags.env, so the service's command line carries them itself.

use crate::api::bootstrap_config::PriorityClass;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;

/// Longest command line that cmd.exe can carry; tools that show or edit a service use it.
const COMMAND_LINE: usize = 8191;
/// Minor from which kube-log-runner rotates what it writes.
const LOG_ROTATION: u32 = 34;

/// Whether kube-log-runner cuts the log of the kubelet.
pub(in crate::bootstrap) fn log_is_cut(minor: u32) -> bool {
    minor >= LOG_ROTATION
}

/// Flags that have no field in the configuration: name and value, for kubeadm and for the service.
pub(in crate::bootstrap) fn flags(facts: &BootstrapFacts) -> Vec<(String, String)> {
    let spec = &facts.spec.kubelet;
    let mut flags = Vec::new();
    let mut flag = |name: &str, value: String| flags.push((name.to_owned(), value));
    if let Some(name) = &facts.host_name {
        flag("hostname-override", name.to_string());
    }
    if !spec.node_ips.is_empty() {
        flag("node-ip", spec.node_ips.join(","));
    }
    let labels: Vec<String> = spec.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if !labels.is_empty() {
        flag("node-labels", labels.join(","));
    }
    if spec.cloud_provider.is_some() {
        flag("cloud-provider", "external".into());
    }
    let class = match spec.priority_class.unwrap_or(PriorityClass::AboveNormal) {
        PriorityClass::Normal => "NORMAL_PRIORITY_CLASS",
        PriorityClass::AboveNormal => "ABOVE_NORMAL_PRIORITY_CLASS",
        PriorityClass::High => "HIGH_PRIORITY_CLASS",
    };
    flag("windows-priorityclass", class.into());
    flag("config-dir", paths::KUBELET_DROP_INS.into());
    if let Some(provider) = &spec.image_credential_provider {
        flag("image-credential-provider-config", paths::CREDENTIAL_PROVIDERS.into());
        flag("image-credential-provider-bin-dir", provider.directory.clone());
    }
    for argument in &spec.extra_args {
        flag(&argument.name, argument.value.clone());
    }
    flags
}

/// Flags that only the service has: where kubeadm puts things.
fn service_flags() -> [(&'static str, &'static str); 5] {
    [
        ("config", paths::KUBELET_CONFIG),
        // With the drive: without it the certificate's path is read as relative to that of kubelet.conf.
        ("cert-dir", paths::KUBELET_PKI),
        ("bootstrap-kubeconfig", paths::BOOTSTRAP_KUBECONFIG),
        ("kubeconfig", paths::KUBELET_KUBECONFIG),
        ("v", "2"),
    ]
}

/// What runs a program of Kubernetes as a service: it writes to its standard error only, which a service has not, and
/// kube-log-runner gives it a file.
pub(in crate::bootstrap) fn log_runner(facts: &BootstrapFacts, file: &str) -> Vec<String> {
    let mut words = vec![paths::LOG_RUNNER.to_owned(), format!("--log-file={file}")];
    if log_is_cut(facts.kubernetes.minor) {
        // A week of files of at most 100 MiB; what is written stays in memory for at most 5 s.
        words.extend(["--log-file-size=100Mi", "--log-file-age=168h", "--flush-interval=5s"].map(str::to_owned));
    }
    words
}

/// Command line of the service.
pub(in crate::bootstrap) fn command_line(facts: &BootstrapFacts, flags: &[(String, String)]) -> Result<String, RenderError> {
    let mut words = log_runner(facts, &format!(r"{}\kubelet.log", paths::KUBELET_LOG));
    words.extend([paths::KUBELET.to_owned(), "--windows-service".to_owned()]);
    words.extend(service_flags().iter().map(|(name, value)| format!("--{name}={value}")));
    words.extend(flags.iter().map(|(name, value)| format!("--{name}={value}")));
    let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    if line.len() > COMMAND_LINE {
        let remedy = format!(
            "the kubelet's command line has {} characters, Windows allows {COMMAND_LINE}: set fewer labels here and the rest on the Machine, and fields instead of flags",
            line.len()
        );
        return Err(RenderError::invalid("spec.kubelet.nodeLabels", format!("{} labels", facts.spec.kubelet.node_labels.len()), remedy));
    }
    Ok(line)
}

/// One word as CommandLineToArgvW and Go read it back.
/// <https://learn.microsoft.com/en-us/cpp/c-language/parsing-c-command-line-arguments>
fn quoted(word: &str) -> String {
    if !word.is_empty() && !word.contains([' ', '\t', '"']) {
        return word.to_owned();
    }
    let mut out = String::from("\"");
    let mut backslashes = 0;
    for c in word.chars() {
        match c {
            '\\' => backslashes += 1,
            // Before a quote each backslash counts twice, and one more makes the quote part of the word.
            '"' => {
                out.push_str(&"\\".repeat(backslashes + 1));
                backslashes = 0;
            }
            _ => backslashes = 0,
        }
        out.push(c);
    }
    out.push_str(&"\\".repeat(backslashes));
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_command_line() {
        for (word, expected) in [
            ("--v=2", "--v=2"),
            (r"--a=C:\k\", r"--a=C:\k\"),
            ("--a=b c", r#""--a=b c""#),
            (r"--a=C:\a b\", r#""--a=C:\a b\\""#),
            (r#"--a="x""#, r#""--a=\"x\"""#),
            (r#"--a=\"x"#, r#""--a=\\\"x""#),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
