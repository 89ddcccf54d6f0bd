//! Formats the report for people.

use std::collections::BTreeSet;

use super::entry::{Entry, State, Trouble};
use super::report::Report;

pub(super) fn text(report: &Report) -> String {
    let mut tree = Tree { text: format!("{}\n", report.verdict), commands: BTreeSet::new() };
    for root in &report.objects {
        tree.text.push('\n');
        tree.entry(root, None, "", "");
    }
    if report.objects.iter().any(has_machine_that_hangs) {
        tree.text.push_str("\nMore of one machine: capw diagnose machine NAME -n NAMESPACE\n");
    }
    for what in &report.not_looked_at {
        tree.text.push_str(&format!("\nnot looked at: {what}\n"));
    }
    tree.text
}

fn has_machine_that_hangs(entry: &Entry) -> bool {
    (entry.kind == "WindowsMachine" && entry.state == State::Hangs) || entry.objects.iter().any(has_machine_that_hangs)
}

struct Tree<'a> {
    text: String,
    /// The commands that were shown: one command may fix several findings.
    commands: BTreeSet<&'a str>,
}

impl<'a> Tree<'a> {
    /// Formats an entry. `first` is the prefix of its own line, `rest` of the lines below.
    fn entry(&mut self, entry: &'a Entry, parent: Option<&Entry>, first: &str, rest: &str) {
        self.line(first, &title(entry, parent));
        let below = if entry.objects.is_empty() { "   " } else { "│  " };
        for trouble in &entry.troubles {
            for line in self.lines(trouble) {
                self.line(&format!("{rest}{below}"), &line);
            }
        }
        for (number, child) in entry.objects.iter().enumerate() {
            let (branch, stem) = if number + 1 == entry.objects.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.entry(child, Some(entry), &format!("{rest}{branch}"), &format!("{rest}{stem}"));
        }
    }

    fn line(&mut self, before: &str, words: &str) {
        self.text.push_str(format!("{before}{words}").trim_end());
        self.text.push('\n');
    }

    fn lines(&mut self, trouble: &'a Trouble) -> Vec<String> {
        let label = match trouble.state {
            State::Well => "warning",
            State::UnderWay => "under way",
            State::Hangs => "hangs",
        };
        let lasts = trouble.seconds.map(|seconds| format!(" for {}", lasting(seconds))).unwrap_or_default();
        let command = trouble.command.as_deref().filter(|command| self.commands.insert(command));
        let remedy = trouble.remedy.as_ref().map(|remedy| format!("  What to do: {}", one_line(remedy)));
        let message = (!trouble.message.is_empty()).then(|| format!("  {}", one_line(&trouble.message)));
        let head = format!("{label}{lasts}: {}", trouble.reason);
        [Some(head), message, remedy, command.map(|command| format!("  {command}"))].into_iter().flatten().collect()
    }
}

/// The title omits a namespace that the entry shares with its parent.
fn title(entry: &Entry, parent: Option<&Entry>) -> String {
    let namespace = parent.is_none().then_some(entry.namespace.as_str());
    let name = namespace.into_iter().chain([entry.name.as_str()]).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let facts = if entry.facts.is_empty() { String::new() } else { format!(": {}", entry.facts.join(", ")) };
    format!("{} {name}", entry.kind).trim_end().to_owned() + &facts
}

/// Joins a message to one line, because hypervisors and guests write messages too.
fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Formats a duration with a useful precision.
fn lasting(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
