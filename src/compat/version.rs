//! Possibly partial versions, and ranges of versions.

use std::cmp::Ordering;
use std::fmt;

/// A version as numbers, most significant first. Suffixes (`-rc.1`, `+k3s1`) are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    text: String,
    numbers: Vec<u64>,
    /// Whether the version stands for all versions with this prefix: `2.3` for all of 2.3.
    partial: bool,
}

/// Compares numbers; missing places count as 0.
fn compare(a: &[u64], b: &[u64]) -> Ordering {
    let places = a.len().max(b.len());
    let at = |numbers: &[u64], place: usize| numbers.get(place).copied().unwrap_or(0);
    (0..places).map(|place| at(a, place).cmp(&at(b, place))).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Returns the numbers at the start of a text, separated by dots or dashes; at least one number.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let digits = |part: &&str| !part.is_empty() && part.len() <= 9 && part.chars().all(|c| c.is_ascii_digit());
    let found: Vec<u64> = text.split(['+', '_']).next()?.split(['.', '-']).take_while(digits).filter_map(|part| part.parse().ok()).collect();
    (!found.is_empty()).then_some(found)
}

impl Version {
    /// Parses a version. `places` is the count of numbers in a complete version; 0 if any count is complete.
    pub fn parse(text: &str, places: usize) -> Option<Self> {
        let numbers = numbers(text)?;
        let partial = numbers.len() < places;
        Some(Self { text: text.to_owned(), numbers, partial })
    }

    /// Returns the first version after all versions that this one stands for.
    fn end(&self) -> Vec<u64> {
        let mut end = self.numbers.clone();
        if let Some(last) = end.last_mut() {
            *last = last.saturating_add(1);
        }
        end
    }

    /// Whether the two have the same major and minor number.
    pub fn same_line(&self, other: &Self) -> bool {
        let line = |v: &Self| (v.numbers.first().copied(), v.numbers.get(1).copied());
        line(self) == line(other)
    }

    /// Whether this version stands for `other` too.
    pub fn covers(&self, other: &Self) -> bool {
        self.partial && compare(&other.numbers, &self.numbers).is_ge() && compare(&other.numbers, &self.end()).is_lt()
    }

    /// Orders by the numbers.
    pub fn compare(&self, other: &Self) -> Ordering {
        compare(&self.numbers, &other.numbers)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Three-valued logic for partial versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    Yes,
    No,
    /// True for some of the versions in question.
    Some,
}

impl Truth {
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Some,
        }
    }

    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Yes, _) | (_, Self::Yes) => Self::Yes,
            (Self::No, Self::No) => Self::No,
            _ => Self::Some,
        }
    }
}

/// A range from (included) and to (not included): `1.31..1.35`, `2.0.4..`, `..1.31`; `1.36` is every version that begins like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    from: Vec<u64>,
    to: Option<Vec<u64>>,
}

impl Range {
    pub fn parse(text: &str) -> Option<Self> {
        let Some((from, to)) = text.split_once("..") else {
            let version = Version::parse(text, usize::MAX)?;
            return Some(Self { from: version.numbers.clone(), to: Some(version.end()) });
        };
        let end = |text: &str| if text.is_empty() { Some(None) } else { whole(text).map(Some) };
        Some(Self { from: end(from)?.unwrap_or_default(), to: end(to)? })
    }

    /// Whether the range contains the newest version.
    pub fn holds_newest(&self) -> Truth {
        if self.to.is_none() { Truth::Yes } else { Truth::No }
    }

    /// Whether the range contains the version. `None` stands for every version.
    pub fn holds(&self, version: Option<&Version>) -> Truth {
        let below_end = |numbers: &[u64]| self.to.as_ref().is_none_or(|to| compare(numbers, to).is_lt());
        let Some(version) = version else {
            return if self.from.is_empty() && self.to.is_none() { Truth::Yes } else { Truth::Some };
        };
        let first = &version.numbers;
        if !version.partial {
            return if compare(first, &self.from).is_ge() && below_end(first) { Truth::Yes } else { Truth::No };
        }
        let end = version.end();
        if compare(&end, &self.from).is_le() || !below_end(first) {
            return Truth::No;
        }
        let inside = compare(first, &self.from).is_ge() && self.to.as_ref().is_none_or(|to| compare(&end, to).is_le());
        if inside { Truth::Yes } else { Truth::Some }
    }
}

/// Parses a bound of a range; it must end after its numbers.
fn whole(text: &str) -> Option<Vec<u64>> {
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.' || c == '-');
    numbers(text).filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn truth(range: &str, version: &str, places: usize) -> Truth {
        Range::parse(range).unwrap().holds(Some(&Version::parse(version, places).unwrap()))
    }

    #[test]
    fn ranges_hold_whole_and_partial_versions() {
        for (range, version, places, wanted) in [
            ("1.31..1.35", "v1.31.0", 3, Truth::Yes),
            ("1.31..1.35", "v1.34.9", 3, Truth::Yes),
            ("1.31..1.35", "v1.35.0", 3, Truth::No),
            ("1.31..1.35", "v1.35.0-rc.1", 3, Truth::No),
            ("1.31..1.35", "v1.30.9+k3s1", 3, Truth::No),
            ("1.36", "v1.36.3", 3, Truth::Yes),
            ("1.36", "v1.3.6", 3, Truth::No),
            ("2.0.4..", "2", 3, Truth::Some),
            ("2.0.4..", "2.0", 3, Truth::Some),
            ("2.0.4..", "2.1", 3, Truth::Yes),
            ("2.0.4..", "2.0.3", 3, Truth::No),
            ("2.0.4..", "1.7", 3, Truth::No),
            ("..2.0.4", "2", 3, Truth::Some),
            ("..2", "2", 3, Truth::No),
            ("..2", "1", 3, Truth::Yes),
            ("3.10.2..3.11", "3.10", 0, Truth::No),
            ("3.10..3.10.2", "3.10", 0, Truth::Yes),
            ("3.10.1-3..", "3.10.1", 0, Truth::No),
            ("3.10.1-3..", "3.10.1-3", 0, Truth::Yes),
            ("..6899", "6899", 1, Truth::No),
            ("..6899", "6898", 1, Truth::Yes),
        ] {
            assert_eq!(truth(range, version, places), wanted, "{range} {version}");
        }
        assert_eq!(Range::parse("..").unwrap().holds(None), Truth::Yes);
        assert_eq!(Range::parse("2..").unwrap().holds(None), Truth::Some);
        for wrong in ["", "x", "1.x..2", "1..y", "latest"] {
            assert_eq!(Range::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        /// The result for a partial version agrees with the results for the versions that it stands for.
        #[test]
        fn a_part_agrees_with_the_whole(a in 0u64..4, b in 0u64..4, from in "[0-3][.][0-3]([.][0-3])?", to in "[0-3][.][0-3]([.][0-3])?") {
            prop_assume!(compare(&whole(&from).unwrap(), &whole(&to).unwrap()).is_lt());
            let range = Range::parse(&format!("{from}..{to}")).unwrap();
            let part = range.holds(Some(&Version::parse(&format!("{a}.{b}"), 3).unwrap()));
            let each: Vec<Truth> = (0..200).map(|c| range.holds(Some(&Version::parse(&format!("{a}.{b}.{c}"), 3).unwrap()))).collect();
            match part {
                Truth::Some => prop_assert!(each.contains(&Truth::Yes) && each.contains(&Truth::No)),
                certain => prop_assert!(each.iter().all(|one| *one == certain)),
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,30}") {
            let _ = Version::parse(&text, 3);
            let _ = Range::parse(&text);
        }
    }
}
