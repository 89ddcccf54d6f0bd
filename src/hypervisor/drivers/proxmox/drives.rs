//! The configuration drives of VMs, as the nodes show them.

use super::driver::ProxmoxDriver;
use super::fault::Refusal;
use super::names::image_of;
use crate::hypervisor::DriverError;
use crate::vm::MachineKey;

impl ProxmoxDriver {
    /// Returns the volume of the configuration drive, as the drives of a VM name it.
    pub(super) fn volume(&self, key: &MachineKey) -> String {
        format!("{}:iso/{}", self.settings.iso_storage, image_of(key.vm))
    }

    /// Returns a node that shows the machine's configuration drive, if the drive exists.
    pub(super) async fn node_of_image(&self, key: &MachineKey, also: Option<&str>) -> Result<Option<String>, DriverError> {
        let name = image_of(key.vm);
        Ok(self.images_of_nodes(also).await?.into_iter().find(|(_, images)| images.contains(&name)).map(|(node, _)| node))
    }

    /// Lists the names of all ISO images, with a node that shows them.
    pub(super) async fn images_of_nodes(&self, also: Option<&str>) -> Result<Vec<(String, Vec<String>)>, DriverError> {
        let place = self.place().await?;
        let (mut shown, mut down) = (Vec::new(), None);
        for node in place.image_nodes(also) {
            match self.client.images(node, &self.settings.iso_storage).await {
                Err(error) if error.is(Refusal::is_down) => down = Some(error),
                images => {
                    shown.push((node.to_owned(), images?));
                    if place.has_shared_images {
                        return Ok(shown);
                    }
                }
            }
        }
        match down {
            None => Ok(shown),
            Some(error) => {
                // The next call reads the places again, without a node that does not answer.
                *self.place.lock().await = None;
                Err(error.into())
            }
        }
    }
}
