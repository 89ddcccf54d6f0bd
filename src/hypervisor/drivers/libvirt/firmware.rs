//! Checks whether an image boots with the firmware that a machine requires, by the first sectors of its disk.

use async_trait::async_trait;

use super::client::Volume;
use super::driver::LibvirtDriver;
use super::link::Session;
use super::partitions::{Disk, LENGTH, Starts};
use super::qcow2::{self, File, Unread};
use super::refusal::Error;
use super::volumes::Image;
use crate::hypervisor::{DriverError, ImageFirmware};
use crate::vm::VmSpec;

/// A volume that is read through the daemon.
struct OfPool<'a> {
    session: &'a Session,
    volume: Volume,
}

#[async_trait]
impl File for OfPool<'_> {
    async fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        self.session.client.download(&self.session.pool, &self.volume, offset, length).await
    }
}

impl LibvirtDriver {
    pub(super) async fn firmware_of_image(&self, session: &Session, spec: &VmSpec) -> Result<ImageFirmware, DriverError> {
        let image = self.image(session, &spec.image).await?;
        let file = OfPool { session, volume: Volume { name: image.name.clone(), key: image.path.clone() } };
        match start(&file, &image).await {
            Ok(sectors) => Ok(judged(spec, &Disk::read(&sectors))),
            Err(Unread::Form(what)) => Ok(ImageFirmware::NotLookedAt(format!("of image {:?}, {what}", spec.image))),
            Err(Unread::File(error @ Error::Refused { .. })) => {
                Ok(ImageFirmware::NotLookedAt(format!("image {:?} cannot be read: {}", spec.image, DriverError::from(error))))
            }
            Err(Unread::File(Error::Driver(error))) => Err(error),
        }
    }
}

async fn start(file: &OfPool<'_>, image: &Image) -> Result<Vec<u8>, Unread> {
    match image.format.as_str() {
        "qcow2" => qcow2::start(file, LENGTH).await,
        _ => Ok(file.read(0, qcow2::wide(LENGTH)).await?),
    }
}

fn judged(spec: &VmSpec, disk: &Disk) -> ImageFirmware {
    let (image, shows) = (&spec.image, disk.shows);
    let (asked, starts, other) = if spec.uefi { ("UEFI", disk.uefi, "BIOS") } else { ("BIOS", disk.bios, "UEFI") };
    let starts_by_other = if spec.uefi { disk.bios } else { disk.uefi } == Starts::Yes;
    match starts {
        Starts::Yes => ImageFirmware::Fits(format!("image {image:?} starts by {asked}: it has {shows}")),
        Starts::Perhaps => ImageFirmware::NotLookedAt(format!("image {image:?} has {shows}, which does not tell whether it starts by {asked}")),
        Starts::No => {
            let remedy =
                if starts_by_other { format!("set spec.firmware.type to {other}, or use another image") } else { "use another image".to_owned() };
            ImageFirmware::Differs(format!(
                "spec.firmware.type of the machine is {asked}, and image {image:?} does not start by it: it has {shows}: {remedy}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::contract;
    use crate::hypervisor::drivers::libvirt::partitions::tests::{windows_by_bios, windows_by_uefi, with_mbr};

    #[test]
    fn an_image_of_the_other_firmware_is_told_with_the_field_and_the_remedy() {
        let said = |uefi, disk: &[u8]| judged(&VmSpec { uefi, ..contract::spec() }, &Disk::read(disk));
        assert!(matches!(said(true, &windows_by_uefi()), ImageFirmware::Fits(text) if text.contains("by UEFI: it has a GPT with an EFI system")));
        assert!(matches!(said(false, &windows_by_bios()), ImageFirmware::Fits(text) if text.contains("by BIOS")));
        for (uefi, disk, words) in [
            (true, windows_by_bios(), ["is UEFI, and image", "an MBR without an EFI system partition", "set spec.firmware.type to BIOS"]),
            (false, windows_by_uefi(), ["is BIOS, and image", "a GPT with an EFI system partition", "set spec.firmware.type to UEFI"]),
            (true, Vec::new(), ["is UEFI, and image", "neither partitions nor a boot sector", ": use another image"]),
        ] {
            let ImageFirmware::Differs(text) = said(uefi, &disk) else { panic!("{uefi}") };
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        assert!(matches!(said(true, &with_mbr(true, &[])), ImageFirmware::NotLookedAt(text) if text.contains("does not tell")));
    }
}
