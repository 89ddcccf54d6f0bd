//! The kubelet's flags: settings without a field in its configuration, and the users' own flags. No program on Windows reads
//! kubeadm-flags.env, so the flags are part of the service's command line.

use super::registration::node_labels;
use crate::api::bootstrap_config::PriorityClass;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;

/// The longest command line of cmd.exe, which tools that show or edit services use.
const COMMAND_LINE: usize = 8191;
/// The minor from which kube-log-runner rotates its log files.
const LOG_ROTATION: u32 = 34;

/// Whether kube-log-runner rotates the kubelet's log.
pub(in crate::bootstrap) fn log_is_rotated(minor: u32) -> bool {
    minor >= LOG_ROTATION
}

/// Returns the name and value of the flags for kubeadm and for the service.
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
    let labels: Vec<String> = node_labels(&facts.spec).iter().map(|(key, value)| format!("{key}={value}")).collect();
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

/// Returns the flags of the service only: the paths that kubeadm uses.
fn service_flags() -> [(&'static str, &'static str); 5] {
    [
        ("config", paths::KUBELET_CONFIG),
        // The path includes the drive: without it the path would be relative to kubelet.conf.
        ("cert-dir", paths::KUBELET_PKI),
        ("bootstrap-kubeconfig", paths::BOOTSTRAP_KUBECONFIG),
        ("kubeconfig", paths::KUBELET_KUBECONFIG),
        ("v", "2"),
    ]
}

/// Runs a Kubernetes program in kube-log-runner, which writes its log to a file: such programs log to standard error, which a service lacks.
pub(in crate::bootstrap) fn log_runner(facts: &BootstrapFacts, file: &str) -> Vec<String> {
    let mut words = vec![paths::LOG_RUNNER.to_owned(), format!("--log-file={file}")];
    if log_is_rotated(facts.kubernetes.minor) {
        // The log consists of files of at most 100 MiB, kept for a week, flushed every 5 s.
        words.extend(["--log-file-size=100Mi", "--log-file-age=168h", "--flush-interval=5s"].map(str::to_owned));
    }
    words
}

/// Returns the command line of the service.
pub(in crate::bootstrap) fn command_line(facts: &BootstrapFacts, flags: &[(String, String)]) -> Result<String, RenderError> {
    let mut words = log_runner(facts, &format!(r"{}\kubelet.log", paths::KUBELET_LOG));
    words.extend([paths::KUBELET.to_owned(), "--windows-service".to_owned()]);
    words.extend(service_flags().iter().map(|(name, value)| format!("--{name}={value}")));
    words.extend(flags.iter().map(|(name, value)| format!("--{name}={value}")));
    let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    if line.len() > COMMAND_LINE {
        let remedy = format!(
            "the kubelet's command line has {} characters, Windows allows {COMMAND_LINE}: set fewer labels here and the others on the Machine, and use fields instead of flags",
            line.len()
        );
        return Err(RenderError::invalid("spec.kubelet.nodeLabels", format!("{} labels", facts.spec.kubelet.node_labels.len()), remedy));
    }
    Ok(line)
}

/// Quotes one argument for CommandLineToArgvW and Go.
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
            // Backslashes before a quote are doubled, and one more escapes the quote.
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
    fn arguments_are_quoted_for_the_command_line() {
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
