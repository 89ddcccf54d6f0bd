//! `capw compat`: the compatible versions on a Windows node, from the data by which the controller refuses versions.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use super::output::print;
use crate::compat::{self, Component, Part, Question, data};

/// Flags of `capw compat`.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Exit code 0: it is known to work. 1: it fails, it is unknown, or it depends on versions that are not given."
)]
pub struct Compat {
    #[command(subcommand)]
    list: Option<List>,
    /// Version of Kubernetes, e.g. v1.36.3.
    #[arg(long, value_name = "VERSION")]
    kubernetes: Option<String>,
    /// Windows Server: 2019, 2022, 2025, or a build with its revision, e.g. 10.0.26100.6899.
    #[arg(long, value_name = "RELEASE")]
    windows: Option<String>,
    /// Version of containerd, whole or in part, e.g. 2.3.7.
    #[arg(long, value_name = "VERSION", conflicts_with = "runtime")]
    containerd: Option<String>,
    /// Another container runtime, e.g. docker.
    #[arg(long, value_name = "NAME[@VERSION]")]
    runtime: Option<String>,
    /// The sandbox image, or its tag in registry.k8s.io/pause.
    #[arg(long, value_name = "IMAGE|TAG")]
    pause: Option<String>,
    /// Base image of a workload: ltsc2019, ltsc2022, ltsc2025.
    #[arg(long, value_name = "BASE")]
    image: Option<String>,
    /// Isolation of containers: process or hyperv. Default: process.
    #[arg(long, value_name = "KIND")]
    isolation: Option<String>,
    /// Kind of pod network: overlay or l2bridge.
    #[arg(long, value_name = "KIND")]
    network: Option<String>,
    /// Network plug-in, e.g. calico@3.32.
    #[arg(long, value_name = "NAME[@VERSION]")]
    cni: Option<String>,
    /// Version of cloudbase-init, e.g. 1.1.8.
    #[arg(long, value_name = "VERSION")]
    cloudbase_init: Option<String>,
    /// Hypervisor of the machines: vsphere, proxmox or libvirt, e.g. vsphere@8.0.3.
    #[arg(long, value_name = "NAME[@VERSION]")]
    hypervisor: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For machines.
    Json,
}

#[derive(Debug, Subcommand)]
enum List {
    /// Print all that is known, with sources and dates, as Markdown tables.
    List,
}

impl Compat {
    pub fn main(self) -> Result<ExitCode, String> {
        let (text, code) = self.run()?;
        print(text)?;
        Ok(code)
    }

    /// Returns the output and the exit code.
    fn run(&self) -> Result<(String, ExitCode), String> {
        if let Some(List::List) = self.list {
            return Ok((compat::markdown(data()), ExitCode::SUCCESS));
        }
        let question = self.question()?;
        if question.parts().next().is_none() {
            return Err(
                "compat: nothing is asked: give at least two of the flags, e.g. --kubernetes v1.36.3 --windows 2025; --help lists them".into()
            );
        }
        let answer = compat::answer(data(), &question);
        let text = match self.output {
            Output::Table => compat::table(&answer),
            Output::Json => serde_json::to_string_pretty(&answer).map_err(|e| e.to_string())? + "\n",
        };
        Ok((text, if answer.accepted() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
    }

    fn question(&self) -> Result<Question, String> {
        let containerd = self.containerd.as_ref().map(|version| format!("containerd@{version}"));
        let pause =
            self.pause.as_ref().map(|image| if image.contains(['/', ':']) { image.clone() } else { format!("{}:{image}", data().pause_repository) });
        let given = [
            (Component::Kubernetes, self.kubernetes.as_ref()),
            (Component::Windows, self.windows.as_ref()),
            (Component::Runtime, containerd.as_ref().or(self.runtime.as_ref())),
            (Component::Pause, pause.as_ref()),
            (Component::Image, self.image.as_ref()),
            (Component::Isolation, self.isolation.as_ref()),
            (Component::Network, self.network.as_ref()),
            (Component::Cni, self.cni.as_ref()),
            (Component::CloudbaseInit, self.cloudbase_init.as_ref()),
            (Component::Hypervisor, self.hypervisor.as_ref()),
        ];
        given.into_iter().filter_map(|(component, value)| Some((component, value?))).try_fold(Question::default(), |question, (component, value)| {
            Part::parse(component, value).map(|part| question.with(part)).map_err(|e| format!("--{e}"))
        })
    }
}

#[cfg(test)]
mod tests;
