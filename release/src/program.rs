//! The programs of an image: the architecture of each, and a check that it needs no other files.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64, PT_INTERP};
use object::pe::IMAGE_FILE_MACHINE_AMD64;
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::pe::PeFile64;
use object::{Endianness, LittleEndian, elf};

/// A program for one architecture.
#[derive(Clone, Debug)]
pub struct Program {
    /// The architecture's name in images: `amd64` or `arm64`.
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
    /// Returns the program's bytes, if it can run alone on its architecture.
    pub fn read(&self) -> Result<Vec<u8>> {
        let bytes = fs::read(&self.path).with_context(|| format!("{}: build it with `make release-binary`", self.path.display()))?;
        check(&bytes, machine(&self.architecture)?).with_context(|| format!("{}: not a program for the image", self.path.display()))?;
        Ok(bytes)
    }
}

/// The program for Windows, which exists only for amd64.
#[derive(Clone, Debug)]
pub struct WindowsProgram(PathBuf);

impl From<PathBuf> for WindowsProgram {
    fn from(path: PathBuf) -> Self {
        Self(path)
    }
}

impl WindowsProgram {
    /// Returns the program's bytes, if it can run alone on Windows.
    pub fn read(&self) -> Result<Vec<u8>> {
        let path = self.0.display();
        let bytes = fs::read(&self.0).with_context(|| format!("{path}: build it with `make release-binary`"))?;
        check_windows(&bytes).with_context(|| format!("{path}: not a program for the Windows entry of the image"))?;
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

fn check_windows(bytes: &[u8]) -> Result<()> {
    let file = PeFile64::parse(bytes).context("not a PE file of 64 bits")?;
    let found = file.nt_headers().file_header.machine.get(LittleEndian);
    ensure!(found == IMAGE_FILE_MACHINE_AMD64, "it is for another processor: PE machine {found:#x}, expected {IMAGE_FILE_MACHINE_AMD64:#x}");
    let Some(imports) = file.import_table()? else { return Ok(()) };
    let mut libraries = imports.descriptors()?;
    while let Some(library) = libraries.next()? {
        let name = String::from_utf8_lossy(imports.name(library.name.get(LittleEndian))?).into_owned();
        // Windows libraries have no such names, but libraries of the C compiler do, e.g. libgcc_s_seh-1.dll.
        ensure!(
            !name.to_ascii_lowercase().starts_with("lib"),
            "it needs {name}, which Windows does not have: build it with -C target-feature=+crt-static"
        );
    }
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::judges;
    use std::path::Path;
    use std::process::Command;

    /// Builds a small static program with the toolchain of the real program.
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

    /// The headers of an empty Windows program for the processor with this number.
    pub fn windows_stand_in(machine: u16) -> Vec<u8> {
        let mut bytes = vec![0; 0x200];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, b"MZ");
        put(0x3c, &0x40_u32.to_le_bytes()); // the offset of the PE header
        put(0x40, b"PE\0\0");
        put(0x44, &machine.to_le_bytes());
        put(0x54, &240_u16.to_le_bytes()); // size of the rest
        put(0x58, &0x20b_u16.to_le_bytes()); // 64 bits
        put(0xc4, &16_u32.to_le_bytes()); // tables, all of them empty
        bytes
    }

    #[test]
    fn a_windows_program_for_another_processor_and_what_is_none_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("capw-node.exe");
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            WindowsProgram(path.clone()).read().err().map(|error| format!("{error:#}")).unwrap_or_default()
        };
        assert_eq!(refused(&windows_stand_in(0x8664)), "");
        assert!(refused(&windows_stand_in(0xaa64)).contains("another processor: PE machine 0xaa64"), "{}", refused(&windows_stand_in(0xaa64)));
        assert!(refused(&fs::read(std::env::current_exe().unwrap()).unwrap()).contains("not a PE file"));
        let error = WindowsProgram(folder.path().join("missing.exe")).read().unwrap_err();
        assert!(error.to_string().contains("missing.exe: build it with"), "{error}");
    }

    #[test]
    fn a_windows_program_that_needs_libraries_of_its_compiler_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        // `false` if the compiler is missing.
        let build = |arguments: &[&str]| {
            let done = judges::output(Command::new("x86_64-w64-mingw32-gcc").args(arguments).current_dir(folder.path()));
            done.map(|done| assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr))).is_some()
        };
        fs::write(folder.path().join("library.c"), "int answer(void) { return 42; }").unwrap();
        fs::write(folder.path().join("alone.c"), "int main(void) { return 0; }").unwrap();
        fs::write(folder.path().join("needs.c"), "int answer(void); int main(void) { return answer(); }").unwrap();
        if !build(&["-o", "alone.exe", "alone.c"]) {
            return;
        }
        build(&["-shared", "-o", "libanswer-1.dll", "library.c"]);
        build(&["-o", "needs.exe", "needs.c", "libanswer-1.dll"]);
        WindowsProgram(folder.path().join("alone.exe")).read().unwrap();
        let error = format!("{:#}", WindowsProgram(folder.path().join("needs.exe")).read().unwrap_err());
        assert!(error.contains("it needs libanswer-1.dll"), "{error}");
    }
}
