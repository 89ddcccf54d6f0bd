//! `capw run | guests | crds | render | status | diagnose | compat | components | hypervisor | image | completion | man | version`: one file per subcommand, with its flags.

mod arguments;
mod compat;
mod completion;
mod components;
mod connection;
mod crds;
mod diagnose;
mod documents;
mod hypervisor;
mod image;
mod man;
mod output;
mod render;
mod run;
mod status;
mod version;
mod wine_programs;

pub use self::arguments::{Arguments, main};
