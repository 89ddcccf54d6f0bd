//! The messages and the service of the wire protocol, generated from `proto/` and checked in, so that a build needs no generator.

#[allow(clippy::all, clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "generated")]
mod generated {
    pub mod externalgrpc {
        include!("../../proto/externalgrpc.rs");
    }
    pub mod node {
        include!("../../proto/node.rs");
    }
}

pub use generated::externalgrpc::*;
pub use generated::node;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a switch of this test alone")]
mod tests {
    use std::fs;
    use std::path::Path;

    /// With `UPDATE_PROTO=1`, the test writes the files instead.
    #[test]
    fn the_generated_files_are_those_of_the_interface() {
        let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
        let out = tempfile::tempdir().unwrap();
        let descriptors = protox::compile(["externalgrpc.proto", "node.proto"], [&proto]).unwrap();
        tonic_prost_build::configure().btree_map(".").build_client(true).out_dir(out.path()).compile_fds(descriptors).unwrap();
        for (made, kept) in [("clusterautoscaler.cloudprovider.v1.externalgrpc.rs", "externalgrpc.rs"), ("k8s.io.api.core.v1.rs", "node.rs")] {
            let made = fs::read_to_string(out.path().join(made)).unwrap();
            let kept = proto.join(kept);
            if std::env::var_os("UPDATE_PROTO").is_some() {
                fs::write(&kept, made).unwrap();
            } else {
                assert_eq!(fs::read_to_string(&kept).unwrap_or_default(), made, "{}: run make proto", kept.display());
            }
        }
    }
}
