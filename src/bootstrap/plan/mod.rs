//! The node plan: an ordered list of items that a small interpreter applies (docs/design/node-plan.md). This module has only its types;
//! `stages/` decides which items a machine gets.

mod check;
mod explain;
mod firewall;
mod item;
mod kind;
mod node_plan;
mod script;

pub use self::check::Check;
pub use self::explain::explain;
pub use self::firewall::{Action, Direction, Protocol};
pub use self::item::{Item, Why};
pub use self::kind::{Access, AddressFlag, ExitCodes, FeatureState, Kind, ProxyAddress, RegistryData, Start, Variables, When};
pub use self::node_plan::{Limits, PLAN_VERSION, Plan, PlanMachine};
pub use self::script::Script;
pub use crate::vm::{REPORT_PLAN, state};
