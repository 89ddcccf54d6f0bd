//! `capw completion`: the script with which a shell completes commands and flags.

use clap::Args;
use clap_complete::Shell;

use super::output::print;

/// Flags of `capw completion`.
#[derive(Args, Debug)]
#[command(after_help = "For bash: source <(capw completion bash). For zsh: capw completion zsh > \"${fpath[1]}/_capw\".")]
pub struct Completion {
    /// The shell that reads it.
    shell: Shell,
}

impl Completion {
    /// Prints the script for a command and its subcommands.
    pub fn main(self, command: clap::Command) -> Result<(), String> {
        print(script(self.shell, command))
    }
}

fn script(shell: Shell, mut command: clap::Command) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "capw", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Arguments;
    use clap::CommandFactory;
    use std::process::Command;

    /// The completions that a shell offers after this command line.
    fn offered(words: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("capw.bash");
        std::fs::write(&file, script(Shell::Bash, Arguments::command())).unwrap();
        let count = words.split(' ').count();
        let ask = format!(
            "source {} && COMP_WORDS=({words} '') && COMP_CWORD={count} && _capw capw '' {} && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            file.display(),
            words.rsplit(' ').next().unwrap()
        );
        let done = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_subcommands_and_flags() {
        for (words, expected) in [
            ("capw", "diagnose"),
            ("capw status", "--all-namespaces"),
            ("capw diagnose", "machine"),
            ("capw diagnose machine", "--context"),
            ("capw hypervisor", "prove"),
            ("capw run", "--leader-elect"),
        ] {
            assert!(offered(words).iter().any(|word| word == expected), "{words}: {:?}", offered(words));
        }
    }

    #[test]
    fn every_shell_gets_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            assert!(String::from_utf8(script(shell, Arguments::command())).unwrap().contains("diagnose"), "{shell}");
        }
    }
}
