//! The tasks of a vCenter, as an answer or an update describes them.

use roxmltree::Node;

use super::fault::Fault;
use super::soap::{Reference, text_of};

/// The state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    Running,
    /// With the object that the task created.
    Succeeded(Option<Reference>),
    Failed(Fault),
    /// The vCenter has forgotten the task.
    Forgotten,
}

/// The properties of a task that are read.
pub const TASK: [&str; 3] = ["info.state", "info.result", "info.error"];

/// A task, property by property.
#[derive(Clone, Debug, Default)]
pub struct Task {
    state: String,
    result: Option<Reference>,
    error: Option<Fault>,
}

impl Task {
    /// Sets a property. An update may be older than the known state: a task that has ended stays ended and keeps its result.
    pub fn set(&mut self, path: &str, value: Option<Node>) {
        match path {
            "info.state" if !self.has_ended() => self.state = value.map(text_of).unwrap_or_default().to_owned(),
            "info.result" => self.result = value.and_then(Reference::of).or(self.result.take()),
            "info.error" => self.error = value.map(Fault::of_localized).or(self.error.take()),
            _ => {}
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state(), Some(TaskState::Succeeded(_) | TaskState::Failed(_)))
    }

    pub fn state(&self) -> Option<TaskState> {
        Some(match self.state.as_str() {
            "" => return None,
            "success" => TaskState::Succeeded(self.result.clone()),
            "error" => TaskState::Failed(self.error.clone().unwrap_or_else(|| Fault { kind: String::new(), text: "a task failed".into() })),
            _ => TaskState::Running,
        })
    }
}
