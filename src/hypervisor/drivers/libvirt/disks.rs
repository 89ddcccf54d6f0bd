//! The names of a VM's disks in its definition.
//!
//! In a pool of files the definition names the path of each disk, and every file under it: libvirt writes the rules of AppArmor with a
//! program that knows no pools (virt-aa-helper), so QEMU may not open a disk by pool and volume. In other pools it names pool and volume.

use roxmltree::{Document, Node};

use crate::xml::{Element, element};

/// The kinds of pools whose volumes are files in one directory.
const OF_FILES: [&str; 3] = ["dir", "fs", "netfs"];
/// The most files under a disk that are followed.
const MOST_LAYERS: usize = 32;

/// The location of a pool's volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    pool: String,
    /// The directory of the volumes; `None`: they are no files.
    directory: Option<String>,
}

/// A file under another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    pub path: String,
    pub format: String,
}

/// The files under a disk, top first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    layers: Vec<Layer>,
    /// Whether the last layer has nothing under it.
    is_whole: bool,
}

/// The location of a disk in the definition of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Pool(String),
    File(String),
}

impl Storage {
    /// Reads the definition of a pool.
    pub fn read(xml: &str) -> Option<Self> {
        let document = Document::parse(xml).ok()?;
        let root = document.root_element();
        let child = |name: &str| root.children().find(|node| node.has_tag_name(name));
        let path = child("target").and_then(|target| target.children().find(|node| node.has_tag_name("path"))?.text());
        let is_of_files = root.attribute("type").is_some_and(|kind| OF_FILES.contains(&kind));
        Some(Self { pool: child("name")?.text()?.to_owned(), directory: path.filter(|_| is_of_files).map(str::to_owned) })
    }

    pub fn is_of_files(&self) -> bool {
        self.directory.is_some()
    }

    /// Whether a disk is a volume of this pool.
    pub fn holds(&self, disk: &Source) -> bool {
        match disk {
            Source::Pool(pool) => *pool == self.pool,
            Source::File(_) => self.volume(disk).is_some(),
        }
    }

    /// Returns the name of the volume if a disk is a file of this pool.
    pub fn volume<'a>(&self, disk: &'a Source) -> Option<&'a str> {
        let Source::File(path) = disk else { return None };
        let (directory, name) = path.rsplit_once('/')?;
        (self.directory.as_deref() == Some(directory)).then_some(name)
    }

    /// Builds a disk of a definition, without its target. `chain` holds the files under the disk, if there are any.
    pub fn disk(&self, device: &str, driver: Element, volume: &str, chain: Option<&Chain>) -> Element {
        let disk = |kind| element("disk").attribute("type", kind).attribute("device", device).with(driver.clone());
        match &self.directory {
            Some(directory) => {
                let source = element("source").attribute("file", format!("{directory}/{volume}"));
                disk("file").with(source).with_all(chain.and_then(Chain::written))
            }
            None => disk("volume").with(element("source").attribute("pool", &self.pool).attribute("volume", volume)),
        }
    }
}

impl Chain {
    /// The chain of a disk with nothing under it.
    pub fn none() -> Self {
        Self { layers: Vec::new(), is_whole: true }
    }

    /// The chain of a file whose definition names `below` under it.
    pub fn begun(below: Option<Layer>) -> Self {
        Self { is_whole: below.is_none(), layers: below.into_iter().collect() }
    }

    /// The chain of a disk over a file, which has a chain of its own.
    pub fn over(file: Layer, below: &Self) -> Self {
        Self { layers: std::iter::once(file).chain(below.layers.iter().cloned()).collect(), is_whole: below.is_whole }
    }

    /// Returns the last known file, if the file under it is not known yet.
    pub fn next(&self) -> Option<&Layer> {
        let is_file = |layer: &&Layer| layer.path.starts_with('/') && self.layers.len() < MOST_LAYERS;
        self.layers.last().filter(is_file).filter(|_| !self.is_whole)
    }

    pub fn extend(&mut self, below: Self) {
        self.layers.extend(below.layers);
        self.is_whole = below.is_whole;
    }

    /// Writes the chain for a definition; `None`: its end is not known, and libvirt reads it from the files.
    fn written(&self) -> Option<Element> {
        let file = |below: Element, layer: &Layer| {
            let format = element("format").attribute("type", &layer.format);
            element("backingStore").attribute("type", "file").with(format).with(element("source").attribute("file", &layer.path)).with(below)
        };
        self.is_whole.then(|| self.layers.iter().rev().fold(element("backingStore"), file))
    }
}

/// Lists the locations of a domain's disks, without the files under them.
pub fn sources(domain: Node<'_, '_>) -> Vec<Source> {
    let of_disks = domain.descendants().filter(|node| node.has_tag_name("disk")).flat_map(|disk| disk.children());
    let read = |node: Node<'_, '_>| match (node.attribute("pool"), node.attribute("file")) {
        (Some(pool), _) => Some(Source::Pool(pool.to_owned())),
        (None, file) => file.map(|file| Source::File(file.to_owned())),
    };
    of_disks.filter(|node| node.has_tag_name("source")).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::drivers::libvirt::volumes::Image;

    fn pool(kind: &str) -> Storage {
        let xml = format!("<pool type='{kind}'><name>fast</name><source><dir path='/x'/></source><target><path>/pools/fast</path></target></pool>");
        Storage::read(&xml).unwrap()
    }

    fn image(below: &str) -> Image {
        let xml = format!(
            "<volume type='file'><name>w.qcow2</name><capacity unit='bytes'>9</capacity><allocation unit='bytes'>5</allocation>\
             <target><path>/pools/fast/w.qcow2</path><format type='qcow2'/></target>{below}</volume>"
        );
        Image::read(&xml).unwrap()
    }

    #[test]
    fn disks_are_files_where_a_pool_has_files_and_volumes_elsewhere() {
        let disk = |storage: &Storage, chain: Option<&Chain>| storage.disk("disk", element("driver"), "a.qcow2", chain).to_string();
        for kind in ["dir", "fs", "netfs"] {
            let written = disk(&pool(kind), Some(&Chain::none()));
            assert_eq!(written, "<disk type='file' device='disk'><driver/><source file='/pools/fast/a.qcow2'/><backingStore/></disk>", "{kind}");
            assert!(pool(kind).is_of_files());
        }
        for kind in ["logical", "rbd", "disk", "iscsi", "zfs"] {
            let written = disk(&pool(kind), Some(&Chain::none()));
            assert_eq!(written, "<disk type='volume' device='disk'><driver/><source pool='fast' volume='a.qcow2'/></disk>", "{kind}");
        }
        assert_eq!((Storage::read(""), Storage::read("<pool type='dir'/>")), (None, None));
    }

    #[test]
    fn every_file_under_a_disk_is_written_or_none() {
        let written = |image: &Image| image.under_disks().written().map(|element| element.to_string());
        let layer =
            |path: &str, below: &str| format!("<backingStore type='file'><format type='qcow2'/><source file='{path}'/>{below}</backingStore>");
        assert_eq!(written(&image("")), Some(layer("/pools/fast/w.qcow2", "<backingStore/>")));
        let mut over = image("<backingStore><path>/pools/fast/base.qcow2</path><format type='qcow2'/></backingStore>");
        assert_eq!(
            (written(&over), over.chain.next().map(|layer| layer.path.as_str())),
            (None, Some("/pools/fast/base.qcow2")),
            "the end is not known"
        );
        over.chain.extend(Chain::none());
        let whole = layer("/pools/fast/w.qcow2", &layer("/pools/fast/base.qcow2", "<backingStore/>"));
        assert_eq!((written(&over), over.chain.next()), (Some(whole), None));
        let remote = image("<backingStore><path>nbd://host/x</path><format type='raw'/></backingStore>");
        assert_eq!((written(&remote), remote.chain.next()), (None, None), "it is no file of this host");
    }

    #[test]
    fn a_disk_is_in_a_pool_by_either_name() {
        let xml = "<domain><devices><disk><source pool='slow' volume='a'/></disk>\
                   <disk><source file='/pools/fast/a.qcow2'/><backingStore><source file='/images/w.qcow2'/></backingStore></disk>\
                   <disk device='cdrom'/><interface><source network='fast'/></interface></devices></domain>";
        let document = Document::parse(xml).unwrap();
        let found = sources(document.root_element());
        assert_eq!(found, [Source::Pool("slow".into()), Source::File("/pools/fast/a.qcow2".into())]);
        for (source, is_held) in [
            (Source::Pool("fast".into()), true),
            (Source::Pool("slow".into()), false),
            (Source::File("/pools/fast/a.qcow2".into()), true),
            (Source::File("/pools/fast/deeper/a.qcow2".into()), false),
            (Source::File("/pools/fast-2/a.qcow2".into()), false),
            (Source::File("a.qcow2".into()), false),
        ] {
            assert_eq!(pool("dir").holds(&source), is_held, "{source:?}");
        }
        assert!(!pool("logical").holds(&Source::File("/pools/fast/a.qcow2".into())), "its target is where devices are");
    }
}
