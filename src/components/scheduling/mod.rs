//! Finds DaemonSets whose pods land on Windows nodes, where they cannot run, and DaemonSets for Windows that do not tolerate the nodes' taints
//! (pure). The pods of the first kind hang, the second kind has no pods, and neither reports the cause.

mod misplaced;
mod rules;

pub use self::misplaced::misplaced;

#[cfg(test)]
mod tests;
