//! The files that create a Windows image: the answer file of an unattended installation, and the script that completes and seals it
//! (docs/hypervisors/libvirt-image.md). Pure: the same installation gives the same files.

mod answer;
mod files;
mod installation;
#[cfg(test)]
mod tests;

pub use self::files::ANSWER_NAME;
pub use self::installation::Installation;
