//! The objects for pods on Windows nodes, which do not depend on the network (pure): a RuntimeClass for each release of Windows Server, and policies
//! that detect pods that cannot work there.

mod changes;
mod host;
mod objects;
mod policies;
mod runtime_classes;

pub use self::changes::{Changes, changes};
pub use self::host::Host;
pub use self::objects::{FOR_PODS, is_among, possible, wanted_classes, wanted_for_pods, windows_pods};
pub use self::policies::{Effect, RULES as POD_RULES};
