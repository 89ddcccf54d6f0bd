//! `capw version`: the version of this program, for people and for programs.

use clap::Args;
use serde::Serialize;

use super::output::{Format, json, print};
use crate::telemetry::build::{self, Build};

/// Flags of `capw version`.
#[derive(Args, Debug)]
pub struct Version {
    /// How the answer is printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// The JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    version: &'static str,
    revision: &'static str,
    platform: &'static str,
}

impl Version {
    pub fn main(self) -> Result<(), String> {
        let text = self.text(&build::BUILD)?;
        print(text)
    }

    fn text(&self, build: &Build) -> Result<String, String> {
        let Build { version, revision, platform } = *build;
        match self.output {
            Format::Text => Ok(format!("capw {version} ({platform}) {revision}\n")),
            Format::Json => json(&Answer { version, revision, platform }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_programs_read_the_version() {
        let build = Build { version: "v1.2.3", revision: "abc", platform: "linux/amd64" };
        assert_eq!(Version { output: Format::Text }.text(&build).unwrap(), "capw v1.2.3 (linux/amd64) abc\n");
        let json: serde_json::Value = serde_json::from_str(&Version { output: Format::Json }.text(&build).unwrap()).unwrap();
        assert_eq!(json, serde_json::json!({"version": "v1.2.3", "revision": "abc", "platform": "linux/amd64"}));
    }
}
