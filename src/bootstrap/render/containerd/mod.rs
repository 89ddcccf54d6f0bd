//! containerd: its `config.toml`, its registries, and the command line of its service.

mod config;
mod registries;
mod tables;

pub(in crate::bootstrap) use self::config::{command_line, config_toml};
pub(super) use self::config::{configuration, sandbox_image};
pub(in crate::bootstrap) use self::registries::files as registry_files;
