//! Lists the components of the program (CycloneDX), from the lock file: the packages that Cargo builds into it for one target.
//!
//! cargo-cyclonedx lists features that only tests enable, and its references contain the path of the checkout, so a second checkout would give
//! another file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

const PRODUCT: &str = "cluster-api-provider-windows";

/// The fields of `cargo metadata` that matter.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `None` is a normal dependency, which is built into its dependent.
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The bill of materials of the checkout's product for a target.
pub fn write(checkout: &Path, target: &str) -> Result<String> {
    let text = cargo(checkout, &["metadata", "--locked", "--format-version", "1", "--filter-platform", target])?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata")?;
    // The metadata includes features that only tests enable; the tree of normal dependencies does not. The program of a release has no default
    // features.
    let product = ["tree", "--locked", "--package", PRODUCT, "--no-default-features", "--target", target];
    let tree = [&product[..], &["--edges", "normal", "--prefix", "none", "--format", "{p}"]].concat();
    let built: BTreeSet<String> = cargo(checkout, &tree)?.lines().map(name_and_version).collect();
    let lock: Lock = toml::from_str(&std::fs::read_to_string(checkout.join("Cargo.lock"))?).context("Cargo.lock")?;
    Ok(serde_json::to_string_pretty(&bill(&metadata, &built, &lock)?)? + "\n")
}

fn cargo(checkout: &Path, arguments: &[&str]) -> Result<String> {
    let done = Command::new("cargo").args(arguments).current_dir(checkout).output().context("cargo")?;
    ensure!(done.status.success(), "cargo {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
    Ok(String::from_utf8(done.stdout)?)
}

/// Returns `serde 1.0.0` for the line `serde v1.0.0 (proc-macro)` of the tree.
fn name_and_version(line: &str) -> String {
    line.split(' ').take(2).map(|word| word.strip_prefix('v').unwrap_or(word)).collect::<Vec<_>>().join(" ")
}

/// Creates the bill of the packages that are built into the product, given by name and version.
fn bill(metadata: &Metadata, built: &BTreeSet<String>, lock: &Lock) -> Result<Value> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, BTreeSet<&str>> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), built_in(node))).collect();
    let checksums: BTreeMap<(&str, &str), &str> =
        lock.package.iter().filter_map(|locked| Some(((locked.name.as_str(), locked.version.as_str()), locked.checksum.as_deref()?))).collect();
    let product = metadata.packages.iter().find(|package| package.name == PRODUCT).with_context(|| format!("no package {PRODUCT}"))?;
    let is_built = |package: &&Package| built.contains(&format!("{} {}", package.name, package.version));
    let mut sorted: Vec<&Package> = metadata.packages.iter().filter(is_built).collect();
    ensure!(sorted.len() == built.len(), "{} packages are built, and {} of them are known", built.len(), sorted.len());
    sorted.sort_by_key(|package| (&package.name, &package.version));
    let components = sorted.iter().filter(|package| package.id != product.id).map(|package| {
        let checksum = checksums.get(&(package.name.as_str(), package.version.as_str()));
        let checksum = checksum.with_context(|| format!("{} {}: the lock file has no checksum", package.name, package.version))?;
        let mut component = component("library", package);
        if let Value::Object(fields) = &mut component {
            fields.insert("hashes".into(), json!([{"alg": "SHA-256", "content": checksum}]));
        }
        Ok(component)
    });
    let components = components.collect::<Result<Vec<_>>>()?;
    let dependencies: Vec<Value> = sorted
        .iter()
        .map(|package| {
            let on = nodes.get(package.id.as_str()).into_iter().flatten().filter_map(|id| packages.get(id).copied()).filter(is_built);
            json!({"ref": purl(package), "dependsOn": on.map(purl).collect::<BTreeSet<_>>()})
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component("application", product)},
        "components": components,
        "dependencies": dependencies,
    }))
}

fn built_in(node: &Node) -> BTreeSet<&str> {
    node.deps.iter().filter(|on| on.dep_kinds.iter().any(|kind| kind.kind.is_none())).map(|on| on.pkg.as_str()).collect()
}

fn component(kind: &str, package: &Package) -> Value {
    let licenses: Vec<Value> = package.license.iter().map(|license| json!({"expression": license.replace('/', " OR ")})).collect();
    let (name, version, purl) = (&package.name, &package.version, purl(package));
    json!({"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, "licenses": licenses})
}

fn purl(package: &Package) -> String {
    // A package of the checkout is in no registry; it still gets a name, so that the product has a reference.
    let origin = if package.source.is_some() { "" } else { "?repository_url=." };
    format!("pkg:cargo/{}@{}{origin}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkout;

    const TARGET: &str = "x86_64-unknown-linux-gnu";

    #[test]
    fn the_bill_has_libraries_of_the_program_and_none_of_its_tests() {
        let bill: Value = serde_json::from_str(&write(&checkout(), TARGET).unwrap()).unwrap();
        let listed: BTreeSet<String> =
            bill["components"].as_array().unwrap().iter().map(|component| component["name"].as_str().unwrap().to_owned()).collect();
        for library in ["kube-client", "rustls", "ring", "serde_derive", "tokio"] {
            assert!(listed.contains(library), "{library}");
        }
        for other in ["insta", "proptest", "protox", "oci-spec", "winsplit", "cluster-api-provider-windows"] {
            assert!(!listed.contains(other), "{other}");
        }
    }

    #[test]
    fn every_reference_is_in_the_bill_and_every_library_has_its_checksum() {
        let bill: Value = serde_json::from_str(&write(&checkout(), TARGET).unwrap()).unwrap();
        let components = bill["components"].as_array().unwrap();
        let mut references: BTreeSet<&str> = components.iter().map(|component| component["bom-ref"].as_str().unwrap()).collect();
        references.insert(bill["metadata"]["component"]["bom-ref"].as_str().unwrap());
        for component in components {
            assert_eq!(component["hashes"][0]["content"].as_str().unwrap().len(), 64, "{component}");
            assert!(!component["licenses"].as_array().unwrap().is_empty(), "{component}");
        }
        for dependency in bill["dependencies"].as_array().unwrap() {
            let on = dependency["dependsOn"].as_array().unwrap().iter().chain([&dependency["ref"]]);
            on.for_each(|reference| assert!(references.contains(reference.as_str().unwrap()), "{reference}"));
        }
    }

    #[test]
    fn a_library_that_the_lock_file_does_not_hold_is_found() {
        let package = |name: &str, source: Option<&str>| Package {
            id: name.into(),
            name: name.into(),
            version: "1.0.0".into(),
            license: None,
            source: source.map(str::to_owned),
        };
        let dependency = Dependency { pkg: "a".into(), dep_kinds: vec![Kind { kind: None }] };
        let nodes = vec![Node { id: PRODUCT.into(), deps: vec![dependency] }, Node { id: "a".into(), deps: vec![] }];
        let metadata = Metadata { packages: vec![package(PRODUCT, None), package("a", Some("registry"))], resolve: Resolve { nodes } };
        let built = [PRODUCT, "a"].map(|name| format!("{name} 1.0.0"));
        let said = |built: &[String]| bill(&metadata, &built.iter().cloned().collect(), &Lock { package: vec![] }).unwrap_err().to_string();
        assert_eq!(said(&built), "a 1.0.0: the lock file has no checksum");
        assert_eq!(said(&[&built[..], &["b 1.0.0".to_owned()]].concat()), "3 packages are built, and 2 of them are known");
    }
}
