//! The fields of plans and items, as they are written into `node.json`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::bootstrap::plan::{Item, Kind, Limits, PLAN_VERSION, Plan, PlanMachine};
use crate::bootstrap::runner::examples::{kinds, named_scripts};

/// The fields of an item.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    pub always: BTreeSet<String>,
    /// Left out where they say nothing.
    pub optional: BTreeSet<String>,
}

pub(super) struct Fields {
    pub plan: BTreeSet<String>,
    /// By the middle of a function's name, e.g. `fileitem`, `clockscript`.
    shapes: BTreeMap<String, Shape>,
    /// Of an item whose kind is not known.
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

    /// A field of anything in a plan.
    pub fn has(&self, name: &str) -> bool {
        [&self.plan, &self.limits, &self.any.always, &self.any.optional].iter().any(|names| names.contains(name))
    }

    /// Of the item that a function is given.
    pub fn of_function(&self, name: &str) -> &Shape {
        let kind = name.split_once('-').map_or("", |(_, kind)| kind).to_lowercase();
        self.shapes.get(&kind).unwrap_or(&self.any)
    }
}

fn names(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

/// What an item of that kind has: a field without which it can still be read is left out at times.
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
