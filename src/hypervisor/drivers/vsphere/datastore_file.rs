//! The file of a seed on a datastore.

const FILE: &str = "capw-seed.iso";

/// A file of a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatastoreFile {
    pub datastore: String,
    pub path: String,
}

impl DatastoreFile {
    /// Returns the seed's file beside another file, which has a vCenter's form of names: `[ds1] vm/vm.vmx`.
    pub fn beside(other: &str) -> Option<Self> {
        let (datastore, path) = other.strip_prefix('[')?.split_once("] ")?;
        let (directory, _) = path.rsplit_once('/')?;
        Some(Self { datastore: datastore.to_owned(), path: format!("{directory}/{FILE}") })
    }

    /// The name in a vCenter's form.
    pub fn name(&self) -> String {
        format!("[{}] {}", self.datastore, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_beside_the_vms_own() {
        let file = DatastoreFile::beside("[gold 1] node-1_2/node-1.vmx").unwrap();
        assert_eq!(file.name(), "[gold 1] node-1_2/capw-seed.iso");
        assert_eq!((DatastoreFile::beside("[gold] node.vmx"), DatastoreFile::beside("node/node.vmx")), (None, None));
    }
}
