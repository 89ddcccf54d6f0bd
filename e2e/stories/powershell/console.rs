//! Wine's console needs a terminal: a pseudo terminal whose output is written to a file.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The program side of the pseudo terminal. Its output is added to the log, until the last program has ended.
pub fn open(log: &Path) -> File {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("a terminal");
    unlockpt(&terminal).expect("a terminal");
    let name = ptsname(&terminal, Vec::new()).expect("its name");
    let path = PathBuf::from(String::from_utf8(name.into_bytes()).expect("a path"));
    let mut log = File::options().create(true).append(true).open(log).expect("a log");
    let mut reader = File::from(terminal);
    let side = File::options().read(true).write(true).open(&path).expect("its other side");
    std::thread::spawn(move || {
        let mut buffer = [0; 65536];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            let _ = log.write_all(&buffer[..count]);
        }
    });
    side
}
