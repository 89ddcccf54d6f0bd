//! Guards as switches: a copy of the tree has a switch for each guard, and an environment variable removes one guard.

use anyhow::{Context, Result, bail};

use super::list::Guard;

/// The environment variable that names the removed guard.
pub const VARIABLE: &str = "CAPW_MUTANT";

/// The function that is added to the library of the copy.
pub const FUNCTION: &str = r#"
pub fn capw_mutant(guard: &str) -> bool {
    static AWAY: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    AWAY.get_or_init(|| std::env::var("CAPW_MUTANT").ok()).as_deref() == Some(guard)
}
"#;

/// Returns a source with a switch for each of these guards.
pub fn with_switches(source: &str, guards: &[Guard]) -> Result<String> {
    let mut places = Vec::new();
    for guard in guards {
        let (from, to) = place(source, guard).with_context(|| format!("guard {:?}", guard.keeps))?;
        places.push((from, to, guard));
    }
    places.sort_by_key(|(from, ..)| *from);
    let (mut switched, mut done) = (String::new(), 0);
    for (from, to, guard) in places {
        let (Some(before), Some(text)) = (source.get(done..from), source.get(from..to)) else {
            bail!("guard {:?}: its text overlaps with that of another guard", guard.keeps);
        };
        switched += &format!("{before}({} {{ {} }} else {{ {text} }})", condition(guard), guard.without);
        done = to;
    }
    Ok(switched + source.get(done..).unwrap_or_default())
}

/// Returns where a guard begins and ends.
fn place(source: &str, guard: &Guard) -> Result<(usize, usize)> {
    let (before, rest) = guard.text.split_once('«').context("its text has no «")?;
    let (text, after) = rest.split_once('»').context("its text has no »")?;
    let whole = format!("{before}{text}{after}");
    let found: Vec<usize> = source.match_indices(&whole).map(|(at, _)| at).collect();
    let [at] = found[..] else { bail!("its text is in the file {} times, and not once: {whole}", found.len()) };
    Ok((at + before.len(), at + before.len() + text.len()))
}

fn condition(guard: &Guard) -> String {
    format!("if crate::capw_mutant({:?})", guard.keeps)
}

/// Returns the guards whose switches lie between two bytes of a source with switches.
pub fn between<'a>(source: &str, guards: &'a [Guard], begin: usize, end: usize) -> Vec<&'a str> {
    let lies_there = |guard: &&Guard| {
        let from = source.find(&condition(guard)).unwrap_or(usize::MAX);
        let text = guard.text.split(['«', '»']).nth(1).unwrap_or_default();
        let to = source.get(from..).and_then(|rest| rest.find(text)).map_or(from, |at| from + at + text.len());
        from <= end && begin <= to
    };
    guards.iter().filter(lies_there).map(|guard| guard.keeps).collect()
}

#[cfg(test)]
mod tests {
    use super::super::list::gone;
    use super::*;

    const SOURCE: &str = "fn f() { if a && b { c()?; } }";

    #[test]
    fn each_guard_becomes_a_switch() {
        let guards = [gone("c comes first", "b { «c()?»;", "()"), gone("a holds", "if «a» && b", "true")];
        let switched = with_switches(SOURCE, &guards).unwrap();
        let expected = r#"fn f() { if (if crate::capw_mutant("a holds") { true } else { a }) && b { (if crate::capw_mutant("c comes first") { () } else { c()? }); } }"#;
        assert_eq!(switched, expected);
        let at = switched.find("c()?").unwrap();
        assert_eq!(between(&switched, &guards, at, at + 1), ["c comes first"], "an error there is of that one");
    }

    #[test]
    fn guards_that_overlap_are_refused() {
        let error = with_switches(SOURCE, &[gone("x", "«a && b»", "true"), gone("y", "«b» {", "true")]).unwrap_err();
        assert!(error.to_string().contains("\"y\": its text overlaps"), "{error}");
    }

    #[test]
    fn a_text_that_is_not_there_once_names_its_guard() {
        for (text, why) in [("«d»", "0 times"), ("«f»", "3 times"), ("a", "no «"), ("«a", "no »")] {
            let error = with_switches(SOURCE, &[gone("x", text, "true")]).unwrap_err();
            assert!(format!("{error:#}").contains("guard \"x\"") && format!("{error:#}").contains(why), "{error:#}");
        }
    }
}
