//! Reads the delivered bytes as a guest does. The simulated guest and tests use it. It is strict, because what a real loader would refuse
//! must not pass here. It shares no code with the writer of the image.

mod delivered;
pub mod iso;
mod payload;

pub use self::delivered::Delivered;
pub use self::payload::Payload;
pub use super::error::ReadError;
