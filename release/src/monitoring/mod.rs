//! The monitoring of CAPW: this module writes the dashboards and tests the alerts.

#[cfg(test)]
mod alerts;
pub mod dashboards;
#[cfg(test)]
mod promtool;
