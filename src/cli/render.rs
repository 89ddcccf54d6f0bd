//! `capw render`: the bootstrap data of a machine, without a cluster. Values that only a cluster knows are marked placeholders.

pub mod given;
pub mod manifests;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use self::given::Given;
use super::output::print;
use crate::api::name::VmUuid;
use crate::bootstrap::delivery::{self, Instance, SeedImage};
use crate::bootstrap::read::Payload;
use crate::bootstrap::render::reserves;
use crate::bootstrap::{self, Bootstrap, BootstrapFacts, DataSize, finding};

/// Flags of `capw render`.
#[derive(Args, Debug)]
pub struct Render {
    /// YAML files with a WindowsBootstrapConfig or its template, and what belongs to it: WindowsMachine(Template), Cluster, MachineDeployment, Secrets. `-` is standard input.
    #[arg(short, long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    file: Vec<PathBuf>,
    /// Write the files of each machine, its user data and its config drive below this directory instead of printing.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print an explanation of the plan, how the reserves were computed, and which settings have no effect.
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    given: Given,
}

impl Render {
    pub fn main(self) -> Result<(), String> {
        let text = self.run()?;
        print(text)
    }

    /// Returns the output.
    fn run(&self) -> Result<String, String> {
        let manifests = manifests::read(&self.file)?;
        let mut text = String::new();
        for machine in manifests.machines()? {
            let facts = self.given.facts(&manifests, &machine)?;
            let rendered = bootstrap::render(&facts).map_err(|e| format!("{}: {e}", machine.origin))?;
            match &self.output {
                Some(directory) => text.push_str(&write(&directory.join(&machine.name), &facts, &rendered)?),
                None if !self.explain => text.push_str(&listing(&rendered)?),
                None => {}
            }
            if self.explain {
                text.push_str(&bootstrap::explain(&rendered.plan));
                text.push_str(&reserves::explain(&facts, &rendered.reserves));
                text.push_str(&finding::explain(&rendered.warnings));
            }
        }
        Ok(text)
    }
}

/// The files of the payload, unpacked in the way of a guest, so that they show what a guest gets.
fn payload(rendered: &Bootstrap) -> Result<Payload, String> {
    Payload::from_user_data(rendered.user_data.as_bytes()).map_err(|e| format!("what was rendered cannot be read: {e}; please report this"))
}

/// Formats the texts, without the scripts that are the same for every machine.
fn listing(rendered: &Bootstrap) -> Result<String, String> {
    let mut files = payload(rendered)?.files;
    files.extend(rendered.answer.as_ref().map(|answer| ("unattend.xml".to_owned(), answer.as_bytes().to_vec())));
    let shown = files.iter().filter(|(path, _)| !path.starts_with("runner/"));
    Ok(shown.map(|(path, bytes)| format!("==> {path} <==\n{}\n", String::from_utf8_lossy(bytes))).collect())
}

/// Writes all files below `directory`; returns the path, and the used share of the channel's limit.
fn write(directory: &Path, facts: &BootstrapFacts, rendered: &Bootstrap) -> Result<String, String> {
    let channel = facts.spec.channel;
    let answer = rendered.answer.as_ref().map(|answer| answer.as_bytes()).unwrap_or_default();
    let user_data = rendered.user_data.as_bytes();
    let instance = Instance { vm: VmUuid::of(&facts.machine_uid), host_name: facts.host_name.as_ref(), user_data, answer };
    let mut files = payload(rendered)?.files;
    files.insert("user_data".into(), user_data.to_vec());
    if rendered.answer.is_some() {
        files.insert("unattend.xml".into(), answer.to_vec());
    }
    match SeedImage::from(&delivery::build(channel, &instance)) {
        SeedImage::Drive(image) => files.insert("config-drive.iso".into(), image),
        SeedImage::GuestInfo(values) => files.insert("guestinfo.json".into(), serde_json::to_vec_pretty(&values).map_err(|e| e.to_string())?),
    };
    for (name, bytes) in &files {
        let path = directory.join(name);
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
        fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let DataSize { bytes, limit, limit_name } = rendered.user_data.size(channel);
    Ok(format!("{}: {} files, {bytes} of {limit} bytes ({channel}: {limit_name})\n", directory.display(), files.len()))
}

#[cfg(test)]
mod tests;
