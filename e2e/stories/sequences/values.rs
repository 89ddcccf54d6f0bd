//! Values for the fields of a kind, from its schema alone: values that it accepts, as far as the schema shows, and values that it must refuse.

use regex::Regex;
use serde_json::{Map, Value, json};

/// A field: its schema, and its path from the root of the object.
pub struct Field {
    pub path: Vec<Step>,
    pub schema: Value,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Key(String),
    /// The first item of a list.
    Item,
}

impl Field {
    /// The name of the step in refusals.
    pub fn name(&self) -> String {
        let parts = self.path.iter().map(|step| match step {
            Step::Key(key) => format!(".{key}"),
            Step::Item => "[0]".to_owned(),
        });
        parts.collect::<String>().trim_start_matches('.').to_owned()
    }
}

/// Every field below a schema.
pub fn fields(schema: &Value, path: &[Step]) -> Vec<Field> {
    let mut all = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = [path, &[Step::Key(name.clone())]].concat();
        all.extend(fields(field, &path));
        if field["items"].is_object() {
            all.extend(fields(&field["items"], &[&path[..], &[Step::Item]].concat()));
        }
        all.push(Field { path, schema: field.clone() });
    }
    all
}

/// The values that a field is set to in turn. Values that the schema seems to accept come first.
pub fn values(schema: &Value) -> Vec<Value> {
    let mut values = good(schema);
    values.extend(wrong(schema));
    values
}

/// A few texts; the texts that match the schema's own patterns come first.
fn texts(schema: &Value) -> Vec<String> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten().filter_map(|rule| rule["rule"].as_str());
    let patterns: Vec<Regex> = rules.filter_map(pattern).collect();
    let digest = format!("sha256:{}", "0".repeat(64));
    let all: Vec<String> = examples(schema).into_iter().chain(["a".to_owned(), "10.0.0.1".to_owned(), digest]).collect();
    let (mut texts, others): (Vec<String>, _) = all.into_iter().partition(|text| patterns.iter().all(|pattern| pattern.is_match(text)));
    texts.extend(others);
    texts.truncate(5);
    texts
}

/// The expression of a rule that starts with `self.matches('…')`. CEL's text holds each backslash twice, and RE2 accepts more than this
/// function parses.
fn pattern(rule: &str) -> Option<Regex> {
    let (expression, _) = rule.strip_prefix("self.matches('")?.split_once("')")?;
    Regex::new(&expression.replace(r"\\", r"\")).ok()
}

/// The examples in the schema's descriptions and messages, which are meant to be valid.
fn examples(schema: &Value) -> Vec<String> {
    let description = schema["description"].as_str().unwrap_or_default().replace('`', "\u{1}");
    let quoted = description.split('\u{1}').skip(1).step_by(2).map(str::to_owned);
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten().filter_map(|rule| rule["message"].as_str());
    let said = rules
        .filter_map(|message| message.split_once("e.g. "))
        .map(|(_, example)| example.split(" or ").next().unwrap_or(example).trim_end_matches(';').to_owned());
    said.chain(quoted).filter(|text| !text.is_empty()).collect()
}

fn good(schema: &Value) -> Vec<Value> {
    if let Some(all) = schema["enum"].as_array() {
        return all.iter().take(3).cloned().collect();
    }
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        return vec![json!(1), json!("50%")];
    }
    match schema["type"].as_str() {
        Some("boolean") => vec![json!(true), json!(false)],
        Some("integer") => {
            let least = schema["minimum"].as_f64().unwrap_or(1.0) as i64;
            // A large number of machines would test nothing about the field.
            let most = (schema["maximum"].as_f64().unwrap_or(2.0) as i64).min(least + 2);
            vec![json!(least), json!(most)]
        }
        Some("array") => vec![json!([sample(&schema["items"])]), json!([])],
        Some("object") if schema["additionalProperties"].is_object() => {
            vec![json!({"example.com/a": sample(&schema["additionalProperties"])}), json!({})]
        }
        Some("object") => vec![sample(schema), json!({})],
        _ => texts(schema).into_iter().map(Value::from).collect(),
    }
}

fn wrong(schema: &Value) -> Vec<Value> {
    let mut wrong = vec![Value::Null];
    match schema["type"].as_str() {
        Some("string") => {
            wrong.extend(["", "^$", "a\u{0}b", " ", "a..b", "x\ny", "ünïcödé"].map(|text| json!(text)));
            wrong.extend(schema["maxLength"].as_u64().filter(|most| *most < 10_000).map(|most| json!("x".repeat(most as usize + 1))));
            wrong.push(json!(7));
        }
        Some("integer") => {
            wrong.extend(
                [schema["minimum"].as_f64().map(|n| n - 1.0), schema["maximum"].as_f64().map(|n| n + 1.0)]
                    .into_iter()
                    .flatten()
                    .map(|n| json!(n as i64)),
            );
            wrong.extend([json!("seven"), json!(1.5), json!(i64::MAX)]);
        }
        Some("array") => {
            wrong
                .extend(schema["maxItems"].as_u64().filter(|most| *most <= 100).map(|most| json!(vec![sample(&schema["items"]); most as usize + 1])));
            wrong.extend([json!([null]), json!("x"), json!({"a": 1})]);
        }
        Some("object") => wrong.extend([json!([]), json!("x"), json!({"^$": "v"})]),
        Some("boolean") => wrong.push(json!("yes")),
        _ => wrong.extend([json!(-1), json!("101%"), json!("many"), json!({})]),
    }
    wrong
}

/// A value with the required fields.
pub fn sample(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("object") if schema["properties"].is_object() => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let fields: Map<String, Value> = required.map(|name| (name.to_owned(), sample(&schema["properties"][name]))).collect();
            fields.into()
        }
        Some("array") if schema["minItems"].as_u64().unwrap_or_default() > 0 => json!([sample(&schema["items"])]),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => good(schema).into_iter().next().unwrap_or(Value::Null),
    }
}

/// The merge patch that sets the field in `object`, and required parent fields that are missing there.
pub fn patch(field: &Field, root: &Value, object: &Value, value: &Value) -> Value {
    below(&field.path, root, Some(object), value)
}

/// Sets the field in `object` itself, whose lists keep their other content.
pub fn put(field: &Field, root: &Value, object: &mut Value, value: &Value) {
    let (mut at, mut schema) = (object, root);
    for step in &field.path {
        match step {
            Step::Key(key) => {
                if !at.is_object() {
                    *at = sample(schema);
                }
                (at, schema) = (&mut at[key], &schema["properties"][key]);
            }
            Step::Item => {
                if at.as_array().is_none_or(Vec::is_empty) {
                    *at = json!([Value::Null]);
                }
                (at, schema) = (&mut at[0], &schema["items"]);
            }
        }
    }
    *at = value.clone();
}

/// Removes the field from `object`.
pub fn take_away(field: &Field, object: &mut Value) {
    let Some((Step::Key(last), way)) = field.path.split_last() else { return };
    let at = way.iter().fold(object, |at, step| match step {
        Step::Key(key) => &mut at[key],
        Step::Item => &mut at[0],
    });
    if let Some(all) = at.as_object_mut() {
        all.remove(last);
    }
}

fn below(path: &[Step], schema: &Value, has: Option<&Value>, value: &Value) -> Value {
    match path {
        [] => value.clone(),
        [Step::Item, rest @ ..] => json!([below(rest, &schema["items"], None, value)]),
        [Step::Key(key), rest @ ..] => {
            let mut all = match has {
                Some(Value::Object(_)) => json!({}),
                _ => sample(schema),
            };
            let inner = has.and_then(|has| has.get(key));
            all[key] = below(rest, &schema["properties"][key], inner, value);
            all
        }
    }
}
