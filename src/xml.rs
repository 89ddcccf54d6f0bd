//! Writes XML: requests to hypervisors in one line, and answer files for Windows Setup with a line for each element.

use std::fmt;

/// An element with attributes, and either children or text.
#[derive(Clone)]
pub struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    text: String,
    children: Vec<Element>,
}

/// Creates an element without attributes.
pub fn element(name: &'static str) -> Element {
    Element { name, attributes: Vec::new(), text: String::new(), children: Vec::new() }
}

impl Element {
    pub fn attribute(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    pub fn text(mut self, text: impl fmt::Display) -> Self {
        self.text = text.to_string();
        self
    }

    pub fn with(mut self, child: Element) -> Self {
        self.children.push(child);
        self
    }

    pub fn with_all(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    /// With a depth, each element has an indented line, in the style of Windows System Image Manager.
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: Option<usize>) -> fmt::Result {
        let (indent, quote, end_of_empty, end) = match depth {
            None => (String::new(), '\'', "/>", ""),
            Some(depth) => ("  ".repeat(depth), '"', " />", "\n"),
        };
        write!(f, "{indent}<{}", self.name)?;
        for (name, value) in &self.attributes {
            write!(f, " {name}={quote}{}{quote}", escaped(value))?;
        }
        if self.children.is_empty() && self.text.is_empty() {
            return write!(f, "{end_of_empty}{end}");
        }
        write!(f, ">{}", escaped(&self.text))?;
        if !self.children.is_empty() {
            f.write_str(end)?;
            self.children.iter().try_for_each(|child| child.write(f, depth.map(|depth| depth + 1)))?;
            f.write_str(&indent)?;
        }
        write!(f, "</{}>{end}", self.name)
    }
}

/// Writes the element in one line; with `{:#}`, each element has a line of its own.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, f.alternate().then_some(0))
    }
}

/// Escapes a text, and drops the characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '\'' => result.push_str("&apos;"),
            '"' => result.push_str("&quot;"),
            '\t' | '\n' | '\r' => result.push_str(&format!("&#{};", c as u32)),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => result.push(c),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_is_written_is_read_by_another_reader(text in "[^\\p{Cc}\u{fffe}\u{ffff}]{1,40}", value in "[\t\n\r -~]{0,40}") {
            let element = element("a").attribute("b", &value).with(element("c").text(&text));
            for written in [format!("{element}"), format!("{element:#}")] {
                let document = roxmltree::Document::parse(&written).unwrap();
                prop_assert_eq!(document.root_element().attribute("b"), Some(value.as_str()));
                prop_assert_eq!(document.root_element().first_element_child().unwrap().text(), Some(text.as_str()));
            }
        }
    }
}
