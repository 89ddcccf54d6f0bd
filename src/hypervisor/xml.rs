//! The writer of XML under the path by which the drivers use it.

pub use crate::xml::{Element, element};
