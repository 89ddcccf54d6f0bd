//! The input of the rules.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::render::Documents;

/// The settings of a node.
pub(super) struct Node<'a> {
    pub minor: u32,
    /// The effective KubeletConfiguration.
    pub config: Map<String, Value>,
    /// The users' part of the KubeletConfiguration.
    pub extra: &'a BTreeMap<String, Value>,
    /// All flags except the ones that kubeadm decides; ours come first.
    pub flags: &'a [(String, String)],
    /// The number of our flags.
    pub ours: usize,
    pub facts: &'a BootstrapFacts,
    pub documents: &'a Documents<'a>,
}
