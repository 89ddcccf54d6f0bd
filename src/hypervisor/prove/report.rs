//! The report of a run for people: Markdown, with the proven behaviour of each hypervisor.

use std::fmt::Write;

use jiff::Timestamp;

use super::outcome::Outcome;
use super::run::Run;
use crate::hypervisor::Endpoint;

/// The facts about a whole run.
pub struct About<'a> {
    pub run: &'a Run,
    /// The version of CAPW, with its commit.
    pub version: String,
    pub now: Timestamp,
}

/// The results with one machine.
pub struct Section {
    /// `<namespace>/<name>` or the name of the WindowsHypervisor.
    pub hypervisor: String,
    pub driver: &'static str,
    /// The endpoint's description of itself; `None`: it was not requested, or the endpoint did not answer.
    pub endpoint: Option<Endpoint>,
    /// The kind and name of the object that requests the machine. The next field is its image.
    pub machine: String,
    pub image: String,
    pub outcomes: Vec<Outcome>,
}

impl Section {
    pub fn is_good(&self) -> bool {
        self.outcomes.iter().all(Outcome::is_good)
    }
}

/// The report of a run.
pub fn markdown(about: &About<'_>, sections: &[Section]) -> String {
    let is_good = sections.iter().all(Section::is_good);
    let verdict = if is_good { "All cases passed that apply." } else { "Not all cases passed." };
    let mut text = format!(
        "# Proof of a hypervisor\n\n{verdict} Made by `capw hypervisor prove`, {}, on {}, in run {}.\n",
        about.version,
        about.now.strftime("%Y-%m-%d %H:%M UTC"),
        about.run
    );
    for section in sections {
        let endpoint = section.endpoint.as_ref();
        let (version, id) = endpoint.map_or(("not known", "not known"), |endpoint| (endpoint.version.as_str(), endpoint.id.as_str()));
        let Section { hypervisor, driver, machine, image, .. } = section;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n## {hypervisor}, {machine}\n\n- Driver: {driver}\n- Hypervisor: {version}\n- Identity: {id}\n- Image: {image}\n\n\
             | Case | Rows of the proof | Result | Seconds | |\n|---|---|---|---:|---|\n"
        );
        for Outcome { case, verdict, took, words, .. } in &section.outcomes {
            let words = words.replace('|', "\\|").replace(['\n', '\r'], " ");
            let _ = writeln!(text, "| {} | {} | {} | {} | {words} |", case.name, case.rows, verdict.as_str(), took.as_secs());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::prove::cases::CASES;
    use crate::hypervisor::prove::outcome::Verdict;
    use std::time::Duration;

    fn section(verdict: Verdict, words: &str) -> Section {
        let outcome = Outcome { case: &CASES[2], verdict, took: Duration::from_millis(41_900), words: words.into(), is_left: false };
        let endpoint = Endpoint { id: "vCenter 1".into(), version: "VMware vCenter Server 8.0.3".into(), ..Endpoint::default() };
        Section {
            hypervisor: "lab/dc1".into(),
            driver: "vsphere",
            endpoint: Some(endpoint),
            machine: "WindowsMachineTemplate windows".into(),
            image: "ws2022".into(),
            outcomes: vec![outcome],
        }
    }

    #[test]
    fn a_report_has_what_was_proven_on_what_and_stays_a_table() {
        let run = "k3x9d0aa".parse().unwrap();
        let about = About { run: &run, version: "v0.1.0 (abc)".into(), now: Timestamp::UNIX_EPOCH };
        let text = markdown(&about, &[section(Verdict::Failed, "a | b\nc")]);
        for part in [
            "Not all cases passed.",
            "v0.1.0 (abc), on 1970-01-01 00:00 UTC, in run k3x9d0aa",
            "## lab/dc1, WindowsMachineTemplate windows",
            "- Driver: vsphere",
            "- Hypervisor: VMware vCenter Server 8.0.3",
            "- Identity: vCenter 1",
            "- Image: ws2022",
            "| a VM is made and removed, and nothing is left | 1 | FAILED | 41 | a \\| b c |\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        assert!(markdown(&about, &[section(Verdict::Passed, "")]).contains("All cases passed"));
    }
}
