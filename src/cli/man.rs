//! `capw man`: writes the manual pages, one for each subcommand.

use std::fs;
use std::path::PathBuf;

use clap::Args;

/// Flags of `capw man`.
#[derive(Args, Debug)]
pub struct Man {
    /// Write the pages into this directory, e.g. /usr/local/share/man/man1.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

impl Man {
    /// Writes the pages of a command and its subcommands.
    pub fn main(self, command: clap::Command) -> Result<(), String> {
        let failed = |e| format!("{}: {e}", self.output.display());
        fs::create_dir_all(&self.output).map_err(failed)?;
        clap_mangen::generate_to(command, &self.output).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Arguments;
    use crate::judges;
    use clap::CommandFactory;
    use std::process::Command;

    #[test]
    fn every_subcommand_has_a_page_that_man_reads_without_warnings() {
        let folder = tempfile::tempdir().unwrap();
        Man { output: folder.path().into() }.main(Arguments::command()).unwrap();
        let pages: Vec<PathBuf> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        for name in ["capw.1", "capw-run.1", "capw-status.1", "capw-diagnose-machine.1", "capw-hypervisor-prove.1", "capw-man.1"] {
            assert!(pages.contains(&folder.path().join(name)), "{name}: {pages:?}");
        }
        for page in &pages {
            let read = judges::output(Command::new("man").args(["--warnings", "--local-file", "-Tutf8"]).arg(page));
            let Some(read) = read else { return };
            let said = String::from_utf8_lossy(&read.stderr);
            assert!(read.status.success() && said.is_empty(), "{}: {said}", page.display());
        }
    }
}
