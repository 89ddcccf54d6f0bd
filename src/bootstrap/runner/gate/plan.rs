//! The fields of plans and items, as they are written into `node.json`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::bootstrap::plan::{Item, Kind, Limits, PLAN_VERSION, Plan, PlanMachine};
use crate::bootstrap::runner::examples::{kinds, named_scripts};

/// The fields of an item.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    pub always: BTreeSet<String>,
    /// The fields that are omitted when they hold their default.
    pub optional: BTreeSet<String>,
}

pub(super) struct Fields {
    pub plan: BTreeSet<String>,
    /// The shapes by the second part of a function's name, e.g. `fileitem`, `clockscript`.
    shapes: BTreeMap<String, Shape>,
    /// The shape of an item of unknown kind.
    any: Shape,
    limits: BTreeSet<String>,
}

impl Fields {
    pub fn new() -> Self {
        let mut shapes = BTreeMap::new();
        for kind in kinds() {
            let value = serde_json::to_value(&kind).unwrap();
            shapes.insert(format!("{}item", value["kind"].as_str().unwrap()).to_lowercase(), shape(&value));
        }
        for script in named_scripts() {
            let value = serde_json::to_value(Kind::Script(script)).unwrap();
            shapes.insert(format!("{}script", value["script"].as_str().unwrap()).to_lowercase(), shape(&value));
        }
        let mut any = Shape::default();
        for shape in shapes.values() {
            any.always.extend(shape.always.iter().cloned());
            any.optional.extend(shape.optional.iter().cloned());
        }
        let limits = Limits { reboots: 0, minutes: 0 };
        let limit_names = names(&serde_json::to_value(&limits).unwrap());
        let machine = PlanMachine { uid: String::new(), name: String::new(), generation: 0 };
        let plan = Plan { plan_version: PLAN_VERSION, machine, kubernetes: String::new(), limits, report: vec![], redact: vec![], items: vec![] };
        Self { plan: names(&serde_json::to_value(plan).unwrap()), shapes, any, limits: limit_names }
    }

    /// Whether any object of a plan has the field.
    pub fn has(&self, name: &str) -> bool {
        [&self.plan, &self.limits, &self.any.always, &self.any.optional].iter().any(|names| names.contains(name))
    }

    /// Returns the shape of the item that a function receives.
    pub fn of_function(&self, name: &str) -> &Shape {
        let kind = name.split_once('-').map_or("", |(_, kind)| kind).to_lowercase();
        self.shapes.get(&kind).unwrap_or(&self.any)
    }
}

fn names(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

/// Returns the fields of an item of that kind. A field is optional if the item can be deserialized without it.
fn shape(kind: &Value) -> Shape {
    let mut item = json!({ "id": "x", "code": 18, "seconds": 1, "attempts": 1, "unless": { "file": "x" }, "optional": true });
    item.as_object_mut().unwrap().extend(kind.as_object().unwrap().clone());
    let mut shape = Shape::default();
    for name in names(&item) {
        let mut without = item.clone();
        without.as_object_mut().unwrap().remove(&name);
        let left_out = serde_json::from_value::<Item>(without).is_ok();
        if left_out {
            shape.optional.insert(name)
        } else {
            shape.always.insert(name)
        };
    }
    shape
}
