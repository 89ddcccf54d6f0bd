//! `capw components`: the effect of a cluster's Linux side on Windows nodes, the objects that install the network there, and the parts of all of it.

mod list;
mod own_image;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::documents::{documents, text};
use super::output::print;
use crate::api::name::is_object_name;
use crate::components::{self, Parameters};

/// Flags of `capw components`.
#[derive(Args, Debug)]
pub struct Components {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show which pod network a cluster has, and what keeps Windows nodes from it.
    Render(Render),
    /// Print the objects that deploy the pod network and kube-proxy on Windows nodes.
    Objects(Objects),
    /// List the images and programs that a site without internet access has to mirror, with their digests.
    List(list::List),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Record a cluster with
  kubectl get nodes,daemonsets,configmaps,services,endpointslices,servicecidrs -A -o yaml
with Calico also
  kubectl get installations,tigerastatuses,ippools,felixconfigurations,ipamconfigurations -o yaml
and with Antrea also
  kubectl get antreaagentinfos -o yaml
Exit code 0: nothing stands in the way of Windows nodes. 1: something does.")]
struct Render {
    #[command(flatten)]
    recording: Recording,
}

#[derive(Args, Debug)]
#[command(after_help = "\
CAPW brings Flannel with vxlan or host-gw, and kube-proxy for that and for Calico by its operator. Record a cluster with
  kubectl get nodes,daemonsets,configmaps,services,servicecidrs -A -o yaml
as `capw components render --help` says.
Exit code 0: the objects are printed. 1: there are none, and standard error says why.")]
struct Objects {
    #[command(flatten)]
    recording: Recording,
    /// The image of CAPW that Windows nodes pull, e.g. registry.example.com/capw:v0.2.0.
    #[arg(long, value_name = "NAME", value_parser = image)]
    image: String,
    /// Where nodes reach the API server, without kube-proxy: e.g. https://10.0.0.10:6443.
    #[arg(long, value_name = "URL", value_parser = api_server)]
    api_server: String,
    /// A Secret in the namespace capw-windows with which nodes pull the image; may be given more than once.
    #[arg(long = "pull-secret", value_name = "NAME", value_parser = pull_secret)]
    pull_secrets: Vec<String>,
}

/// The objects of a cluster, as they were recorded.
#[derive(Args, Debug)]
struct Recording {
    /// Files with the objects of the cluster, YAML or JSON; `-` is standard input.
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    from: Vec<PathBuf>,
}

impl Components {
    pub fn main(self) -> Result<ExitCode, String> {
        let (text, code) = match self.what {
            What::Render(render) => render.run()?,
            What::Objects(objects) => (objects.run()?, ExitCode::SUCCESS),
            What::List(list) => list.run()?,
        };
        print(text)?;
        Ok(code)
    }
}

impl Render {
    /// Returns the output and the exit code.
    fn run(&self) -> Result<(String, ExitCode), String> {
        let objects = self.recording.objects()?;
        let side = components::read(&objects);
        let mut findings = components::judge(&side);
        findings.extend(components::misplaced(&objects));
        let errors = findings.iter().any(|finding| !components::is_warning(finding.reason));
        let mut text = components::text(&side, &findings);
        let services = components::beyond_windows(&objects);
        if !services.is_empty() {
            text.push_str("\nServices that Windows nodes do not serve as they say:\n");
        }
        services.iter().for_each(|limit| text.push_str(&format!("  {limit}.\n")));
        Ok((text, if errors { ExitCode::FAILURE } else { ExitCode::SUCCESS }))
    }
}

impl Objects {
    /// Returns the output: a document for each object, in the order in which they must be applied.
    fn run(self) -> Result<String, String> {
        let side = components::read(&self.recording.objects()?);
        let parameters = Parameters { image: self.image, api_server: self.api_server, pull_secrets: self.pull_secrets };
        let objects = components::windows_side(&side, &parameters).map_err(|refusal| format!("components: {refusal}"))?;
        let document = |object: &Value| Ok(format!("---\n{}", serde_saphyr::to_string(object).map_err(|e| e.to_string())?));
        objects.iter().map(document).collect()
    }
}

impl Recording {
    fn objects(&self) -> Result<Vec<Value>, String> {
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
        Ok(objects)
    }
}

fn image(text: &str) -> Result<String, String> {
    let is_name = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._/:@".contains(c));
    if is_name { Ok(text.to_owned()) } else { Err("give the name of an image, e.g. registry.example.com/capw:v0.2.0".into()) }
}

fn pull_secret(text: &str) -> Result<String, String> {
    if is_object_name(text) { Ok(text.to_owned()) } else { Err("give the name of a Secret: lower case letters, digits, - and .".into()) }
}

fn api_server(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").unwrap_or_default();
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-.:[]".contains(c));
    if is_host { Ok(text.to_owned()) } else { Err("give https:// with host and port, e.g. https://10.0.0.10:6443".into()) }
}

fn object(origin: &str, document: &str) -> Result<Value, String> {
    // kubectl's JSON is parsed faster than its YAML.
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
