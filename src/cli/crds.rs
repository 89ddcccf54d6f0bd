//! `capw crds`: prints the CustomResourceDefinitions, from the Rust types.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::output::print;
use crate::api;

/// Flags of `capw crds`.
#[derive(Args, Debug)]
pub struct Crds {
    /// Write one file per kind into this directory instead of printing.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Crds {
    pub fn main(self) -> Result<(), String> {
        for (name, text) in files()? {
            match &self.output {
                Some(dir) => {
                    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
                    let path = dir.join(name);
                    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
                }
                None => print(format!("---\n{text}"))?,
            }
        }
        Ok(())
    }
}

/// The file name and text of each definition.
fn files() -> Result<Vec<(String, String)>, String> {
    let text = |crd: &CustomResourceDefinition| serde_saphyr::to_string(crd).map_err(|e| e.to_string());
    api::custom_resource_definitions().iter().map(|crd| Ok((format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural), text(crd)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn committed_crds_are_current() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
        let mut names: Vec<String> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|n| n.ends_with(".yaml") && n != "kustomization.yaml");
        names.sort();
        let mut wanted = files().unwrap();
        wanted.sort();
        assert_eq!(names, wanted.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>(), "crds/ holds other files than the kinds: run `make crds`");
        for (name, text) in wanted {
            assert_eq!(fs::read_to_string(dir.join(&name)).unwrap(), text, "{name} is stale: run `make crds`");
        }
    }
}
