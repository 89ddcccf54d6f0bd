//! The gate for PowerShell: parses every script as PowerShell does, and checks what it calls, uses and sets against lists of known
//! names. The gate does not prove that Windows does what is meant, but it finds a slip of a name or brace.

mod calls;
mod form;
mod members;
mod plan;
mod shipped;
mod slips;
mod sources;
mod tests;
mod variables;
mod world;

pub(super) use self::sources::{defined, scripts};
