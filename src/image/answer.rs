//! `Autounattend.xml`: Windows Setup's answers, from the empty disk to the script that creates the image.

use secrecy::ExposeSecret;

use super::installation::Installation;
use crate::api::machine::FirmwareType;
use crate::bootstrap::delivery::unattend::parts::{self, Element};

/// The script that Setup runs at its end.
pub(super) const SCRIPT_NAME: &str = "install.ps1";
/// The drivers of virtio-win that Setup needs to access the disk and the network.
pub(super) const DRIVERS: [&str; 2] = ["viostor", "NetKVM"];
/// The letters that the CD may have while Setup runs: the letter depends on the machine, and Setup skips paths that do not exist.
const LETTERS: [char; 4] = ['D', 'E', 'F', 'G'];

pub(super) fn answer(installation: &Installation) -> String {
    let Installation { language, locale, .. } = installation;
    let setup = Element::component("Microsoft-Windows-International-Core-WinPE")
        .with(Element::new("SetupUILanguage").with(Element::text("UILanguage", language)));
    let time_zone = Element::component("Microsoft-Windows-Shell-Setup").with(Element::text("TimeZone", &installation.time_zone));
    parts::document([
        Element::pass("windowsPE")
            .with(parts::languages(setup, language, locale))
            .with(drivers(installation))
            .with(Element::component("Microsoft-Windows-Setup").with(disk(installation.firmware)).with(image(installation)).with(user(installation))),
        Element::pass("specialize").with(parts::command("Make the image", &parts::run_from_drive(SCRIPT_NAME, "-Install"))).with(time_zone),
        Element::pass("oobeSystem")
            .with(parts::languages(Element::component("Microsoft-Windows-International-Core"), language, locale))
            .with(parts::first_start(installation.password.expose_secret())),
    ])
}

fn drivers(installation: &Installation) -> Element {
    let paths = LETTERS.into_iter().flat_map(|letter| DRIVERS.map(|driver| format!(r"{letter}:\{}", installation.driver(driver).replace('/', r"\"))));
    let paths = paths.enumerate().fold(Element::new("DriverPaths"), |paths, (number, path)| {
        let entry = Element::item("PathAndCredentials").attribute("wcm:keyValue", &(number + 1).to_string());
        paths.with(entry.with(Element::text("Path", &path)))
    });
    Element::component("Microsoft-Windows-PnpCustomizationsWinPE").with(paths)
}

/// A partition: its type, its MiB (`None`: all remaining space), and the settings that modify it.
type Partition = (&'static str, Option<u32>, &'static [(&'static str, &'static str)]);

/// Windows is on the last partition, so that it can be extended.
fn partitions(firmware: FirmwareType) -> &'static [Partition] {
    match firmware {
        FirmwareType::Uefi => {
            &[("EFI", Some(260), &[("Format", "FAT32")]), ("MSR", Some(16), &[]), ("Primary", None, &[("Format", "NTFS"), ("Letter", "C")])]
        }
        FirmwareType::Bios => &[("Primary", None, &[("Active", "true"), ("Format", "NTFS"), ("Letter", "C")])],
    }
}

fn disk(firmware: FirmwareType) -> Element {
    let (mut create, mut modify) = (Element::new("CreatePartitions"), Element::new("ModifyPartitions"));
    for (number, (kind, size, settings)) in (1..).zip(partitions(firmware)) {
        let number = u32::to_string(&number);
        let size = size.map_or_else(|| Element::text("Extend", "true"), |size| Element::text("Size", &size.to_string()));
        let created = Element::item("CreatePartition").with(Element::text("Order", &number)).with(Element::text("Type", kind)).with(size);
        create = create.with(created);
        let modified = Element::item("ModifyPartition").with(Element::text("Order", &number)).with(Element::text("PartitionID", &number));
        modify = modify.with(settings.iter().fold(modified, |modified, (name, value)| modified.with(Element::text(name, value))));
    }
    let disk = Element::item("Disk").with(Element::text("DiskID", "0")).with(Element::text("WillWipeDisk", "true"));
    Element::new("DiskConfiguration").with(disk.with(create).with(modify))
}

fn image(installation: &Installation) -> Element {
    let last = partitions(installation.firmware).len().to_string();
    let name = Element::item("MetaData").with(Element::text("Key", "/IMAGE/NAME")).with(Element::text("Value", &installation.edition));
    let to = Element::new("InstallTo").with(Element::text("DiskID", "0")).with(Element::text("PartitionID", &last));
    Element::new("ImageInstall").with(Element::new("OSImage").with(Element::new("InstallFrom").with(name)).with(to))
}

/// Returns the user data of Setup. It omits an unset product key, because Setup treats an empty key as an error.
fn user(installation: &Installation) -> Element {
    let key = installation.product_key.iter().map(|key| Element::text("Key", key.expose_secret()));
    let key = key.fold(Element::new("ProductKey"), Element::with).with(Element::text("WillShowUI", "OnError"));
    Element::new("UserData").with(Element::text("AcceptEula", "true")).with(key)
}
