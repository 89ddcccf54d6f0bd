//! The journal of a driver.

use std::collections::BTreeMap;

/// The ids and tasks that a driver reserved or started, stored in the machine's status before the driver uses them.
pub type Journal = BTreeMap<String, String>;
