//! `Autounattend.xml`: Windows Setup's answers, from the empty disk to the script that creates the image.

use secrecy::ExposeSecret;

use super::installation::Installation;
use crate::api::machine::FirmwareType;
use crate::bootstrap::delivery::unattend::parts::{self, component, item, pass};
use crate::xml::{Element, element};

/// The script that Setup runs at its end.
pub(super) const SCRIPT_NAME: &str = "install.ps1";
/// The drivers of virtio-win that Setup needs to access the disk and the network.
pub(super) const DRIVERS: [&str; 2] = ["viostor", "NetKVM"];
/// The letters that the CD may have while Setup runs: the letter depends on the machine, and Setup skips paths that do not exist.
const LETTERS: [char; 4] = ['D', 'E', 'F', 'G'];

pub(super) fn answer(installation: &Installation) -> String {
    let Installation { language, locale, .. } = installation;
    let setup = component("Microsoft-Windows-International-Core-WinPE").with(element("SetupUILanguage").with(element("UILanguage").text(language)));
    let time_zone = component("Microsoft-Windows-Shell-Setup").with(element("TimeZone").text(&installation.time_zone));
    parts::document([
        pass("windowsPE")
            .with(parts::languages(setup, language, locale))
            .with(drivers(installation))
            .with(component("Microsoft-Windows-Setup").with(disk(installation.firmware)).with(image(installation)).with(user(installation))),
        pass("specialize").with(parts::command("Make the image", &parts::run_from_drive(SCRIPT_NAME, "-Install"))).with(time_zone),
        pass("oobeSystem")
            .with(parts::languages(component("Microsoft-Windows-International-Core"), language, locale))
            .with(parts::first_start(installation.password.expose_secret())),
    ])
}

fn drivers(installation: &Installation) -> Element {
    let paths = LETTERS.into_iter().flat_map(|letter| DRIVERS.map(|driver| format!(r"{letter}:\{}", installation.driver(driver).replace('/', r"\"))));
    let paths = paths.enumerate().fold(element("DriverPaths"), |paths, (number, path)| {
        let entry = item("PathAndCredentials").attribute("wcm:keyValue", number + 1);
        paths.with(entry.with(element("Path").text(path)))
    });
    component("Microsoft-Windows-PnpCustomizationsWinPE").with(paths)
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
    let (mut create, mut modify) = (element("CreatePartitions"), element("ModifyPartitions"));
    for (number, (kind, size, settings)) in (1..).zip(partitions(firmware)) {
        let size = size.map_or_else(|| element("Extend").text("true"), |size| element("Size").text(size));
        let created = item("CreatePartition").with(element("Order").text(number)).with(element("Type").text(kind)).with(size);
        create = create.with(created);
        let modified = item("ModifyPartition").with(element("Order").text(number)).with(element("PartitionID").text(number));
        modify = modify.with(settings.iter().fold(modified, |modified, (name, value)| modified.with(element(name).text(value))));
    }
    let disk = item("Disk").with(element("DiskID").text("0")).with(element("WillWipeDisk").text("true"));
    element("DiskConfiguration").with(disk.with(create).with(modify))
}

fn image(installation: &Installation) -> Element {
    let last = partitions(installation.firmware).len();
    let name = item("MetaData").with(element("Key").text("/IMAGE/NAME")).with(element("Value").text(&installation.edition));
    let to = element("InstallTo").with(element("DiskID").text("0")).with(element("PartitionID").text(last));
    element("ImageInstall").with(element("OSImage").with(element("InstallFrom").with(name)).with(to))
}

/// Returns the user data of Setup. It omits an unset product key, because Setup treats an empty key as an error.
fn user(installation: &Installation) -> Element {
    let key = installation.product_key.iter().map(|key| element("Key").text(key.expose_secret()));
    let key = key.fold(element("ProductKey"), Element::with).with(element("WillShowUI").text("OnError"));
    element("UserData").with(element("AcceptEula").text("true")).with(key)
}
