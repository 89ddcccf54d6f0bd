//! The program that an image is made of: for which processor it is, and that it needs no file beside itself.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};

/// A program for one architecture.
#[derive(Clone, Debug)]
pub struct Program {
    /// As images name it: `amd64` or `arm64`.
    pub architecture: String,
    pub path: PathBuf,
}

impl FromStr for Program {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (architecture, path) = text.split_once('=').with_context(|| format!("{text:?} is not ARCHITECTURE=FILE, e.g. amd64=out/capw"))?;
        machine(architecture)?;
        Ok(Self { architecture: architecture.to_owned(), path: path.into() })
    }
}

impl Program {
    /// Its bytes, if it can run alone on its architecture.
    pub fn read(&self) -> Result<Vec<u8>> {
        let bytes = fs::read(&self.path).with_context(|| format!("{}: build it with `make release-binary`", self.path.display()))?;
        check(&bytes, machine(&self.architecture)?).with_context(|| format!("{}: not a program for the image", self.path.display()))?;
        Ok(bytes)
    }
}

/// The number of the architecture in ELF files.
fn machine(architecture: &str) -> Result<u16> {
    match architecture {
        "amd64" => Ok(EM_X86_64),
        "arm64" => Ok(EM_AARCH64),
        other => bail!("{other:?} is no architecture of the image; expected amd64 or arm64"),
    }
}

fn check(bytes: &[u8], machine: u16) -> Result<()> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).context("not an ELF file of 64 bits")?;
    let endian = header.endian()?;
    let found = FileHeader64::e_machine(header, endian);
    ensure!(found == machine, "it is for another processor: ELF machine {found}, expected {machine}");
    let needs_loader = header.program_headers(endian, bytes)?.iter().any(|segment| segment.p_type(endian) == PT_INTERP);
    ensure!(!needs_loader, "it is linked dynamically, and the image holds no loader: build it with -C target-feature=+crt-static and --target");
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;

    /// A small static program from the toolchain that builds the real one.
    pub fn stand_in(folder: &Path) -> PathBuf {
        let (source, program) = (folder.join("main.rs"), folder.join("capw"));
        fs::write(&source, "fn main() { println!(\"capw stands here\"); }").unwrap();
        let mut compiler = Command::new("rustc");
        compiler.args(["-C", "target-feature=+crt-static", "-o"]).arg(&program).arg(&source);
        assert!(compiler.status().unwrap().success());
        program
    }

    /// The architecture of this machine, and another one.
    pub const ARCHITECTURES: (&str, &str) = if cfg!(target_arch = "aarch64") { ("arm64", "amd64") } else { ("amd64", "arm64") };

    #[test]
    fn a_static_program_runs_and_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = stand_in(folder.path());
        let said = Command::new(&path).output().unwrap().stdout;
        assert_eq!(said, b"capw stands here\n");
        Program { architecture: ARCHITECTURES.0.into(), path }.read().unwrap();
    }

    #[test]
    fn a_program_that_needs_others_or_another_processor_is_refused() {
        let own = std::env::current_exe().unwrap();
        let refused = |architecture: &str| format!("{:#}", Program { architecture: architecture.into(), path: own.clone() }.read().unwrap_err());
        let (ours, other) = ARCHITECTURES;
        assert!(refused(ours).contains("linked dynamically"), "{}", refused(ours));
        assert!(refused(other).contains("another processor"), "{}", refused(other));
        assert!("riscv=x".parse::<Program>().unwrap_err().to_string().contains("expected amd64 or arm64"));
        assert!("amd64".parse::<Program>().unwrap_err().to_string().contains("ARCHITECTURE=FILE"));
    }
}
