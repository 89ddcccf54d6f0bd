//! The program of the pod, as a child process. Its output goes to the container's log.

use std::fmt::Display;
use std::path::Path;
use std::process::{self, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::node::{Failure, PAUSE};
use crate::say;

pub struct Child {
    name: String,
    process: process::Child,
}

impl Child {
    pub fn start(program: &Path, arguments: &[String]) -> Result<Self, Failure> {
        let name = program.file_name().unwrap_or_default().display().to_string();
        say(&format!("starts {} {}", program.display(), arguments.join(" ")));
        let process = Command::new(program).args(arguments).spawn();
        let process = process.map_err(|error| Failure(format!("{} does not start: {error}", program.display())))?;
        Ok(Self { name, process })
    }

    /// Polls `look` until it returns a value, and pauses between two calls. The end of the child is noticed at once.
    pub fn until<T>(&mut self, pause: Duration, mut look: impl FnMut() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
        let mut next = Instant::now();
        loop {
            if Instant::now() >= next {
                if let Some(found) = look()? {
                    return Ok(found);
                }
                next = Instant::now() + pause;
            }
            if let Some(status) = self.process.try_wait().map_err(|error| self.failed(error))? {
                return Err(self.failed(format!("ended ({status}); the lines before this one say why")));
            }
            sleep(PAUSE);
        }
    }

    fn failed(&self, what: impl Display) -> Failure {
        Failure(format!("{}: {what}", self.name))
    }
}

impl Drop for Child {
    /// Kills the child, because nothing supervises it without this program.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        Child::start(Path::new("/bin/sh"), &["-c".into(), script.into()]).unwrap()
    }

    #[test]
    fn it_is_waited_for_until_it_ends() {
        let mut looks = 0;
        let look = || {
            looks += 1;
            Ok((looks == 2).then_some(7))
        };
        assert_eq!(shell("exec sleep 60").until(PAUSE, look), Ok(7));
        let mut looks = 0;
        let look = || {
            looks += 1;
            Ok(None::<()>)
        };
        let Failure(why) = shell("exit 3").until(Duration::from_secs(3600), look).unwrap_err();
        assert_eq!(looks, 1, "its end is noticed between two looks");
        assert!(why.starts_with("sh: ended (exit status: 3)"), "{why}");
        let failed = shell("exec sleep 60").until(PAUSE, || Err::<Option<()>, _>(Failure("no".into())));
        assert_eq!(failed, Err(Failure("no".into())));
    }
}
