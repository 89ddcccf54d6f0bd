//! The size of an object.

use std::io::{self, Write};

use serde::Serialize;

/// Returns the bytes of the object's JSON without creating it.
pub fn size(object: &impl Serialize) -> usize {
    let mut counted = Counted(0);
    match serde_json::to_writer(&mut counted, object) {
        Ok(()) => counted.0,
        // The object was read from JSON, so this cannot fail.
        Err(_) => 0,
    }
}

struct Counted(usize);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
