//! Versions of Kubernetes, as users write them and API servers report them.

use std::fmt;

/// A version, e.g. `v1.36.3`, `v1.35.2-eks-1a2b3c` or `1.37`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesVersion {
    pub major: u32,
    pub minor: u32,
    /// `None`: the text ends with the minor.
    pub patch: Option<u32>,
    /// The text after the numbers: `-rc.1`, `+build`, or empty.
    pub suffix: String,
}

impl KubernetesVersion {
    /// Parses the numbers at the start of a text; the `v` may be missing, as in `.status.version` of some control planes. Any suffix is accepted:
    /// vendors write their own.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, rest) = number(text.strip_prefix('v').unwrap_or(text))?;
        let (minor, rest) = number(rest.strip_prefix('.')?)?;
        let (patch, suffix) = match rest.strip_prefix('.').and_then(number) {
            Some((patch, suffix)) => (Some(patch), suffix),
            None => (None, rest),
        };
        Some(Self { major, minor, patch, suffix: suffix.to_owned() })
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}", self.major, self.minor)?;
        self.patch.iter().try_for_each(|patch| write!(f, ".{patch}"))?;
        f.write_str(&self.suffix)
    }
}

/// Splits a text after the number of one to four digits that it begins with.
fn number(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))?;
    let number = digits.parse().ok().filter(|_| digits.len() <= 4)?;
    Some((number, rest))
}

/// Returns the minor of a version that a server reports, e.g. `v1.36.3-gke.100`; `None` if it is not a version of Kubernetes 1.x.
pub fn minor(version: &str) -> Option<u32> {
    KubernetesVersion::parse(version).filter(|version| version.major == 1).map(|version| version.minor)
}

/// Returns a version without its suffix: `v1.35.2` of `v1.35.2-eks-1a2b3c`. A text that is no version is returned whole.
pub fn without_suffix(version: &str) -> &str {
    KubernetesVersion::parse(version).and_then(|parsed| version.strip_suffix(parsed.suffix.as_str())).unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_have_two_or_three_numbers_and_a_suffix() {
        for (text, numbers, suffix) in [
            ("v1.36.3", Some((1, 36, Some(3))), ""),
            ("1.31.0", Some((1, 31, Some(0))), ""),
            ("v1.37.0-rc.1", Some((1, 37, Some(0))), "-rc.1"),
            ("v1.33.2+k3s1", Some((1, 33, Some(2))), "+k3s1"),
            ("v1.33+", Some((1, 33, None)), "+"),
            ("1.37", Some((1, 37, None)), ""),
            ("v2.1.0", Some((2, 1, Some(0))), ""),
            ("v1.36.3.1", Some((1, 36, Some(3))), ".1"),
            ("v1.36.x", Some((1, 36, None)), ".x"),
            ("v1.36.20260101", Some((1, 36, None)), ".20260101"),
            ("v1", None, ""),
            ("v1.+36.3", None, ""),
            ("v1.99999.0", None, ""),
            ("latest", None, ""),
            ("", None, ""),
        ] {
            let parsed = KubernetesVersion::parse(text);
            assert_eq!(parsed.as_ref().map(|version| (version.major, version.minor, version.patch)), numbers, "{text}");
            assert_eq!(parsed.map(|version| version.suffix).unwrap_or_default(), suffix, "{text}");
        }
    }

    #[test]
    fn servers_report_their_minor() {
        for (version, expected) in [("v1.36.3", Some(36)), ("1.37", Some(37)), ("v1.33+", Some(33)), ("v2.1.0", None), ("", None), ("v1", None)] {
            assert_eq!(minor(version), expected, "{version}");
        }
    }

    #[test]
    fn a_suffix_can_be_left_out() {
        for (version, expected) in
            [("v1.35.2-eks-1a2b3c", "v1.35.2"), ("1.35.2+k3s1", "1.35.2"), ("v1.35.2", "v1.35.2"), ("main-branch", "main-branch")]
        {
            assert_eq!(without_suffix(version), expected, "{version}");
        }
    }

    proptest! {
        #[test]
        fn a_version_is_shown_as_it_was_written(text in "v[1-9]{1,4}[.][1-9]{1,4}([.][1-9]{1,4})?([-+_].{0,10})?") {
            prop_assert_eq!(KubernetesVersion::parse(&text).unwrap().to_string(), text);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = (KubernetesVersion::parse(&text), without_suffix(&text));
        }
    }
}
