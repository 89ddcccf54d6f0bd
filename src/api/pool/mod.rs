//! `WindowsNodePool`: N machines of one template (InfraMachinePool contract v1beta2 with MachinePool Machines,
//! docs/design/cluster-api.md).

mod spec;
mod standalone;
mod status;
mod strategy;
mod template;

pub use self::spec::*;
pub use self::standalone::*;
pub use self::status::*;
pub use self::strategy::*;
pub use self::template::*;
