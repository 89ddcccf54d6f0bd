//! `capw components`: what the Linux side of a cluster means for Windows nodes, without any cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::documents::{documents, text};
use super::output::print;
use crate::components;

/// Flags of `capw components`.
#[derive(Args, Debug)]
pub struct Components {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say which pod network a cluster has, and what keeps Windows nodes from it.
    Render(Render),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Record a cluster with
  kubectl get nodes,daemonsets,configmaps,services,servicecidrs -A -o yaml
with Calico also
  kubectl get installations,ippools,felixconfigurations,ipamconfigurations -o yaml
and with Antrea also
  kubectl get antreaagentinfos -o yaml
Exit code 0: nothing stands in the way of Windows nodes. 1: something does.")]
struct Render {
    /// Files with the objects of the cluster, YAML or JSON; `-` is standard input.
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    from: Vec<PathBuf>,
}

impl Components {
    pub fn main(self) -> Result<ExitCode, String> {
        let What::Render(render) = self.what;
        let (text, code) = render.run()?;
        print(text)?;
        Ok(code)
    }
}

impl Render {
    /// What is printed, and the exit code.
    fn run(&self) -> Result<(String, ExitCode), String> {
        let mut objects = Vec::new();
        for path in &self.from {
            let text = text(path)?;
            for (number, document) in documents(&text).iter().enumerate() {
                objects.push(object(&format!("{}: document {}", path.display(), number + 1), document)?);
            }
        }
        if objects.is_empty() {
            return Err("components: --from: the files hold no objects; --help says how to record a cluster".into());
        }
        let side = components::read(&objects);
        let findings = components::judge(&side);
        let errors = findings.iter().any(|finding| !components::is_warning(finding.reason));
        Ok((components::text(&side, &findings), if errors { ExitCode::FAILURE } else { ExitCode::SUCCESS }))
    }
}

fn object(origin: &str, document: &str) -> Result<Value, String> {
    // kubectl's JSON is read faster than its YAML.
    let json = document.trim_start().starts_with('{').then(|| serde_json::from_str(document).ok()).flatten();
    let value: Value = match json {
        Some(value) => value,
        None => serde_saphyr::from_str(document).map_err(|e| format!("{origin}: {e}"))?,
    };
    if value.get("kind").and_then(Value::as_str).is_none() {
        return Err(format!("{origin}: kind: it is missing: this is not a Kubernetes object"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
