//! Reads fields of objects with other writers. An unexpected value is recorded with object and field, and reading continues.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde_json::Value;

use super::cidr::Cidr;

/// The longest text that is parsed: a ConfigMap or an annotation cannot hold more.
const LONGEST: usize = 1 << 20;
/// The most characters of a value that are quoted.
const QUOTED: usize = 60;
/// The most unreadable fields that are listed.
const MOST: usize = 50;

/// The object from which a value was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    pub kind: String,
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectRef {
    pub fn new(kind: &str, namespace: Option<&str>, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    /// Returns the reference to an object; missing parts are empty.
    pub fn of(object: &Value) -> Self {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
        Self::new(text("/kind").unwrap_or_default(), text("/metadata/namespace"), text("/metadata/name").unwrap_or_default())
    }

    /// Finds the object of this name.
    pub fn find<'a>(&self, objects: &'a [Value]) -> Option<&'a Value> {
        let is_its = |object: &&Value| is_of_kind(object, &self.kind) && Self::of(object) == *self;
        objects.iter().find(is_its)
    }

    /// The arguments for `kubectl`: `-n kube-flannel daemonset/kube-flannel-ds`.
    pub fn for_kubectl(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!("-n {namespace} ")).unwrap_or_default();
        format!("{namespace}{}/{}", self.kind.to_ascii_lowercase(), self.name)
    }
}

/// Whether an object is of that kind.
pub fn is_of_kind(object: &Value, kind: &str) -> bool {
    object.get("kind").is_some_and(|found| found == kind)
}

/// Formats the reference as `ConfigMap kube-flannel/kube-flannel-cfg`.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// An unreadable field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub object: ObjectRef,
    pub field: String,
    /// The problem, as the end of a sentence that begins with the field.
    pub problem: String,
}

/// The unreadable fields found so far.
#[derive(Debug, Default)]
pub struct Problems(RefCell<Vec<Unreadable>>);

impl Problems {
    pub fn add(&self, object: &ObjectRef, field: &str, problem: impl Into<String>) {
        let found = Unreadable { object: object.clone(), field: field.to_owned(), problem: problem.into() };
        let mut all = self.0.borrow_mut();
        if all.len() < MOST && !all.contains(&found) {
            all.push(found);
        }
    }

    /// Takes the unreadable fields.
    pub fn take(&self) -> Vec<Unreadable> {
        self.0.take()
    }
}

/// The path of a value one step below a field: the step is a name, or an index such as `[0]`.
pub fn below(field: &str, step: &str) -> String {
    match step {
        step if step.starts_with('[') => format!("{field}{step}"),
        // Keys of ConfigMaps and annotations contain dots.
        step if step.contains('.') => format!("{field}[{step}]"),
        step if field.is_empty() => step.to_owned(),
        step => format!("{field}.{step}"),
    }
}

/// A value in an object, and its path.
#[derive(Clone, Debug)]
pub struct Place<'a> {
    pub object: ObjectRef,
    /// The path, e.g. `spec.calicoNetwork.ipPools[0].encapsulation` or `data[net-conf.json].Backend.VNI`.
    pub field: String,
    value: Cow<'a, Value>,
    problems: &'a Problems,
}

impl<'a> Place<'a> {
    pub fn root(object: &'a Value, problems: &'a Problems) -> Self {
        Self { object: ObjectRef::of(object), field: String::new(), value: Cow::Borrowed(object), problems }
    }

    fn inside(&self, step: &str, value: Option<Cow<'a, Value>>) -> Self {
        let field = below(&self.field, step);
        Self { object: self.object.clone(), field, value: value.unwrap_or(Cow::Owned(Value::Null)), problems: self.problems }
    }

    /// Returns the field of this name, whether it exists or not.
    pub fn at(&self, key: &str) -> Self {
        if self.given() && !self.value.is_object() {
            self.problem(format!("is {}, expected fields", quoted(&self.value)));
        }
        let value = match &self.value {
            Cow::Borrowed(value) => value.get(key).map(Cow::Borrowed),
            Cow::Owned(value) => value.get(key).cloned().map(Cow::Owned),
        };
        self.inside(key, value)
    }

    /// Returns the field at a path of names without dots.
    pub fn along(&self, path: &str) -> Self {
        path.split('.').fold(self.clone(), |place, key| place.at(key))
    }

    /// Returns the field of this name in any case, as Go reads JSON.
    pub fn in_any_case(&self, key: &str) -> Self {
        let written = self.keys().into_iter().find(|written| written.eq_ignore_ascii_case(key)).unwrap_or_default();
        let exact = self.at(key);
        if exact.given() { exact } else { Self { field: exact.field, ..self.at(&written) } }
    }

    /// An annotation of the object.
    pub fn annotation(&self, key: &str) -> Self {
        self.at("metadata").at("annotations").at(key)
    }

    /// The names of the fields below.
    pub fn keys(&self) -> Vec<String> {
        self.value.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default()
    }

    /// Whether the value exists.
    pub fn given(&self) -> bool {
        !self.value.is_null()
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    pub fn problem(&self, problem: impl Into<String>) {
        self.problems.add(&self.object, &self.field, problem);
    }

    /// Converts the value; another type is a problem. `None` if the value is missing or has another type.
    fn read<T>(&self, expected: &str, convert: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let found = convert(&self.value);
        if found.is_none() && self.given() {
            self.problem(format!("is {}, expected {expected}", quoted(&self.value)));
        }
        found
    }

    /// The text, if it is not empty.
    pub fn text(&self) -> Option<String> {
        self.read("a text", |value| value.as_str().map(str::to_owned)).filter(|text| !text.is_empty())
    }

    /// The text, which must be one of these in any case; returned as written in the list.
    pub fn one_of(&self, known: &[&'static str]) -> Option<&'static str> {
        let find = |text: &str| known.iter().find(|word| word.eq_ignore_ascii_case(text)).copied();
        if self.value.as_str() == Some("") {
            return None;
        }
        self.read(&format!("one of {}", known.join(", ")), |value| value.as_str().and_then(find))
    }

    /// The whole number, from 0 to `most`.
    pub fn number(&self, most: u32) -> Option<u32> {
        let convert = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number <= most);
        self.read(&format!("a whole number up to {most}"), convert)
    }

    /// The number, which may be written as text, as in environments and ConfigMaps.
    pub fn number_in_text(&self, most: u32) -> Option<u32> {
        let convert = |value: &Value| value.as_str().and_then(|text| text.trim().parse().ok()).filter(|number: &u32| *number <= most);
        if self.value.is_string() { self.read(&format!("a whole number up to {most}"), convert) } else { self.number(most) }
    }

    pub fn flag(&self) -> Option<bool> {
        self.read("true or false", Value::as_bool)
    }

    /// The boolean, which may be written as text, as in environments and ConfigMaps.
    pub fn flag_in_text(&self) -> Option<bool> {
        self.read("true or false", |value| match value.as_str().map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "enabled" | "1") => Some(true),
            Some("false" | "disabled" | "0" | "") => Some(false),
            _ => value.as_bool(),
        })
    }

    /// The value as a network.
    pub fn network(&self) -> Option<Cidr> {
        self.read("a network, e.g. 10.244.0.0/16", |value| Cidr::parse(value.as_str()?))
    }

    /// The value as networks: a list, or a text with commas.
    pub fn networks(&self) -> Vec<Cidr> {
        if self.value.is_string() {
            return self.read("networks, e.g. 10.244.0.0/16", |value| Cidr::parse_all(value.as_str()?)).unwrap_or_default();
        }
        self.items().iter().filter_map(Place::network).collect()
    }

    /// The entries of the list.
    pub fn items(&self) -> Vec<Self> {
        let count = self.read("a list", |value| value.as_array().map(Vec::len)).unwrap_or_default();
        let item = |index: usize| match &self.value {
            Cow::Borrowed(value) => value.get(index).map(Cow::Borrowed),
            Cow::Owned(value) => value.get(index).cloned().map(Cow::Owned),
        };
        (0..count).map(|index| self.inside(&format!("[{index}]"), item(index))).collect()
    }

    /// Parses the text as a JSON object.
    pub fn json(&self) -> Option<Self> {
        self.parsed("JSON with fields", |text| serde_json::from_str(text).map_err(|e| e.to_string()), Value::is_object)
    }

    /// Parses the text as a JSON list.
    pub fn json_list(&self) -> Option<Self> {
        self.parsed("a list in JSON", |text| serde_json::from_str(text).map_err(|e| e.to_string()), Value::is_array)
    }

    /// Parses the text as a YAML mapping.
    pub fn yaml(&self) -> Option<Self> {
        self.parsed("YAML with fields", |text| serde_saphyr::from_str(text).map_err(|e| first_line(&e.to_string())), Value::is_object)
    }

    fn parsed(&self, expected: &str, parse: impl Fn(&str) -> Result<Value, String>, fits: impl Fn(&Value) -> bool) -> Option<Self> {
        let text = self.text()?;
        if text.len() > LONGEST {
            self.problem(format!("has {} bytes, more than {LONGEST}", text.len()));
            return None;
        }
        match parse(&text) {
            Ok(value) if fits(&value) => Some(Self { value: Cow::Owned(value), ..self.clone() }),
            Ok(value) => {
                self.problem(format!("is {}, expected {expected}", quoted(&value)));
                None
            }
            Err(error) => {
                self.problem(format!("is not {expected}: {error}"));
                None
            }
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Formats a value for a message, truncated if it is long.
fn quoted(value: &Value) -> String {
    let text = match value {
        Value::Array(items) => return format!("a list of {}", items.len()),
        Value::Object(fields) => return format!("an object of {} fields", fields.len()),
        value => value.to_string(),
    };
    if text.chars().count() <= QUOTED { text } else { text.chars().take(QUOTED).chain("…".chars()).collect() }
}
