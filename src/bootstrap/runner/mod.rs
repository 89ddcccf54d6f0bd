//! The scripts that carry out a plan on Windows: static text, the same for every machine, without any knowledge of Kubernetes.
//! `loader.ps1` carries the payload ([`super::delivery`]), checks it at every start and starts `run.ps1`, which reads the others.

#[cfg(test)]
mod examples;
#[cfg(test)]
mod gate;
mod scripts;
#[cfg(test)]
mod tests;

pub(super) use self::scripts::{LOADER, LOADER_NAME, SCRIPTS};
