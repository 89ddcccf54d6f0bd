//! A selection of namespaces of the management cluster.

use std::collections::BTreeSet;
use std::fmt;

/// A selection of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    #[default]
    All,
    /// Only these namespaces.
    Named(BTreeSet<String>),
}

impl Namespaces {
    pub fn one(name: &str) -> Self {
        Self::Named([name.to_owned()].into())
    }

    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(name),
        }
    }
}

/// Writes the selection as in flags: names separated by commas, or `*`.
impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Named(names) => f.write_str(&names.iter().map(String::as_str).collect::<Vec<_>>().join(",")),
        }
    }
}

/// Selects all namespaces if one of the names is `*`.
impl FromIterator<String> for Namespaces {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        let names: BTreeSet<String> = names.into_iter().collect();
        if names.contains("*") { Self::All } else { Self::Named(names) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_meant_and_a_star_means_all() {
        let named: Namespaces = ["a".to_owned(), "b".to_owned()].into_iter().collect();
        assert!(named.contains("a") && named.contains("b") && !named.contains("c") && !named.contains("*"));
        assert_eq!(named.to_string(), "a,b");
        let all: Namespaces = ["a".to_owned(), "*".to_owned()].into_iter().collect();
        assert!(all.contains("c"));
        assert!(!std::iter::empty().collect::<Namespaces>().contains(""));
    }
}
