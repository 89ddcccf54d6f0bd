//! Writes the artifacts of a CAPW release. The Makefile runs this program, which is not part of the product.

mod archive;
mod components;
mod definitions;
mod image;
#[cfg(test)]
#[path = "../../src/judges.rs"]
mod judges;
mod layer;
mod monitoring;
mod program;
mod sbom;
mod windows;
#[cfg(test)]
mod workflows;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};

use self::image::Image;
use self::program::Program;

/// Writes what a release of CAPW consists of.
#[derive(Debug, Parser)]
#[command(name = "capw-release")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the image as an OCI layout, and print the digest of its index.
    Image {
        /// The program for one architecture, as ARCHITECTURE=FILE; amd64 or arm64.
        #[arg(long = "program", required = true, value_name = "ARCHITECTURE=FILE")]
        programs: Vec<Program>,
        /// capw-node.exe for amd64; without it the image has no entry for Windows.
        #[arg(long, value_name = "FILE")]
        windows_program: Option<PathBuf>,
        /// The commit that the programs were built from.
        #[arg(long, value_name = "COMMIT", default_value = "unknown")]
        revision: String,
        /// When that commit was made, in seconds since 1970: the time of every file and of the image.
        #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH", default_value_t = 0)]
        created: u32,
        /// Folder of the layout; what was there before is removed.
        #[arg(long, value_name = "DIR")]
        output: PathBuf,
    },
    /// Write one architecture of Linux in a layout as a file that `docker load` and `podman load` take.
    Archive {
        /// Folder of the layout.
        #[arg(long, value_name = "DIR")]
        layout: PathBuf,
        #[arg(long, value_name = "ARCHITECTURE", default_value = "amd64")]
        architecture: String,
        /// Name and tag that the loaded image gets.
        #[arg(long, value_name = "NAME:TAG")]
        image: String,
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Write the files that every image has beside its program, for builds with a Containerfile.
    Root {
        /// Folder for the files; what was there before is removed.
        #[arg(long, value_name = "DIR")]
        output: PathBuf,
    },
    /// Say which changes of definitions break objects or clients that an earlier release left behind.
    Definitions {
        /// Folder with the definitions of the earlier release.
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
        /// Folder with those of this one.
        #[arg(long, value_name = "DIR", default_value = "crds")]
        to: PathBuf,
    },
    /// Write the dashboards for Grafana.
    Dashboards {
        #[arg(long, value_name = "DIR")]
        output: PathBuf,
    },
    /// Print what the program of a target is built from, as CycloneDX.
    Sbom {
        #[arg(long, value_name = "TARGET", default_value = "x86_64-unknown-linux-gnu")]
        target: String,
    },
    /// Write a local repository of clusterctl, with the configuration that names it.
    Components(components::Components),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Image { programs, windows_program, revision, created, output } => {
            let digest = Image { programs, windows: windows_program.map(Into::into), revision, created }.write(&output)?;
            print(&format!("{digest}\n"))
        }
        Command::Archive { layout, architecture, image, output } => archive::write(&layout, &architecture, &image, &output),
        Command::Root { output } => layer::write_root(&output),
        Command::Definitions { from, to } => definitions::compare(&from, &to),
        Command::Sbom { target } => print(&sbom::write(Path::new("."), &target)?),
        Command::Dashboards { output } => monitoring::dashboards::write(&output),
        Command::Components(components) => print(&components.write()?),
    }
}

/// The checkout that tests read.
#[cfg(test)]
fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn print(text: &str) -> Result<()> {
    Ok(std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?)
}
