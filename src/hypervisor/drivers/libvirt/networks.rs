//! Checks that the networks of a machine exist on the host and are active.

use tokio::time::Instant;

use super::domain::BRIDGE;
use super::driver::LibvirtDriver;
use super::link::Session;
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::{FRESH, listed};
use crate::vm::{Thing, VmSpec};

impl LibvirtDriver {
    /// Lists the names of a machine's networks, bridges of the host as `bridge:NAME`.
    fn networks_of<'a>(&'a self, spec: &'a VmSpec) -> impl Iterator<Item = &'a str> {
        spec.nics.iter().filter_map(|nic| nic.network.as_deref().or(self.default_network()))
    }

    /// Refuses a machine whose networks are missing or inactive: libvirt reports that only when it starts the VM, after everything was created.
    pub(super) async fn check_networks(&self, session: &Session, spec: &VmSpec) -> Result<(), DriverError> {
        let named: Vec<&str> = self.networks_of(spec).filter(|name| !name.starts_with(BRIDGE)).collect();
        if named.is_empty() {
            return Ok(());
        }
        let mut networks = self.networks.lock().await;
        let active = match &*networks {
            Some((known, since)) if since.elapsed() < FRESH => known.clone(),
            _ => session.client.active_networks().await?,
        };
        let Some(missing) = named.iter().find(|name| !active.iter().any(|active| active == *name)) else {
            // The age counts from when the networks were found, not from the last check.
            networks.get_or_insert((active, Instant::now()));
            return Ok(());
        };
        *networks = None;
        let all = session.client.networks().await?;
        let address = &self.settings.address;
        let text = if all.iter().any(|name| name == missing) {
            format!(
                "network {missing:?} is not active on {address}: start it (virsh net-start {missing}, and virsh net-autostart {missing} for the future)"
            )
        } else {
            let there = listed(all.iter().map(String::as_str));
            format!(
                "{address} has no network {missing:?}; it has {there}: correct spec.networks of the machine or spec.libvirt.network of the WindowsHypervisor; a bridge of the host is named bridge:NAME"
            )
        };
        Err(DriverError::Missing { thing: Thing::Network, text })
    }

    /// Refuses a machine whose bridge the daemon does not list among the host's interfaces. If it lists none, the start of the VM shows it.
    pub(super) async fn check_bridges(&self, session: &Session, spec: &VmSpec) -> Result<(), DriverError> {
        let bridges: Vec<&str> = self.networks_of(spec).filter_map(|name| name.strip_prefix(BRIDGE)).collect();
        if bridges.is_empty() {
            return Ok(());
        }
        const ALL: &str = "";
        let mut interfaces = self.interfaces.lock().await;
        let there = match interfaces.get(ALL) {
            Some(there) => there,
            None => {
                let there = session.client.interfaces().await?;
                interfaces.put(ALL, there.clone());
                there
            }
        };
        let Some(missing) = there.as_ref().and_then(|there| missing(&bridges, there)) else { return Ok(()) };
        interfaces.clear();
        let there = listed(there.iter().flatten().map(String::as_str));
        let text = format!(
            "{} has no bridge {missing:?}; its interfaces are {there}: make the bridge on the host, or correct {BRIDGE}{missing} in spec.networks of the machine or spec.libvirt.network of the WindowsHypervisor",
            self.settings.address
        );
        Err(DriverError::Missing { thing: Thing::Network, text })
    }
}

/// Returns the first missing bridge. A daemon that lists no interface at all does not know the bridges.
fn missing<'a>(bridges: &[&'a str], there: &[String]) -> Option<&'a str> {
    bridges.iter().copied().find(|bridge| !there.is_empty() && !there.iter().any(|name| name == bridge))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_is_missing_if_the_daemon_lists_interfaces_without_it() {
        let there = ["lo", "eth0", "br0"].map(str::to_owned);
        assert_eq!((missing(&["br0", "br9"], &there), missing(&["br0"], &there), missing(&["br0"], &[])), (Some("br9"), None, None));
    }
}
