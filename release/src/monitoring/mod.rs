//! What watches CAPW: dashboards, written here, and alerts, tested here.

#[cfg(test)]
mod alerts;
pub mod dashboards;
#[cfg(test)]
mod promtool;
