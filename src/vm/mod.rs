//! THE TYPES OF A VM that decisions and drivers share.

mod driver_error;
mod endpoint;
mod failure_code;
mod journal;
mod key;
mod mac_address;
mod observed;
mod power;
mod report;
mod seed;
mod spec;

pub use self::driver_error::{DriverError, Thing};
pub use self::endpoint::Endpoint;
pub use self::failure_code::FailureCode;
pub use self::journal::Journal;
pub use self::key::MachineKey;
pub use self::mac_address::MacAddress;
pub use self::observed::{Observed, Present, Seeded, usable};
pub use self::power::{Power, StopMode};
pub use self::report::{GuestReport, REPORT_LINE, REPORT_PLAN, state};
pub use self::seed::{Seed, SeedKind};
pub use self::spec::{Nic, VmDisk, VmSpec};
