//! The reports of a guest during its setup (docs/design/node-plan.md).

/// A line that a guest reported. It comes from outside: limited in length, printable, used for status only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestReport {
    pub sequence: u64,
    pub boot: u32,
    pub item: String,
    pub state: String,
    pub code: u32,
    pub message: String,
}

/// The item name of lines that report on the whole plan.
pub const REPORT_PLAN: &str = "plan";
/// The states in a report line: of an item, and `finished` and `failed` of the plan.
pub mod state {
    pub const STARTED: &str = "started";
    pub const DONE: &str = "done";
    pub const RETRY: &str = "retry";
    pub const REBOOT: &str = "reboot";
    /// An optional item failed; the plan continues.
    pub const WARNED: &str = "warned";
    pub const FAILED: &str = "failed";
    pub const FINISHED: &str = "finished";
}

/// The longest report line in bytes and the longest message in characters.
pub const REPORT_LINE: usize = 512;
const REPORT_MESSAGE: usize = 240;
/// The first word of every line.
const VERSION: &str = "capw1";

impl GuestReport {
    /// Parses `capw1 <seq> <boot> <item> <state> <code> <sum> <message>`; `None` for anything else, including a wrong checksum.
    pub fn parse(line: &str) -> Option<Self> {
        if line.len() > REPORT_LINE || !line.is_ascii() {
            return None;
        }
        let mut fields = line.splitn(8, ' ');
        if fields.next()? != VERSION {
            return None;
        }
        let mut next = || fields.next();
        let report = Self {
            sequence: next()?.parse().ok()?,
            boot: next()?.parse().ok()?,
            item: word(next()?)?,
            state: word(next()?)?,
            code: next()?.parse().ok()?,
            message: String::new(),
        };
        let sum = u32::from_str_radix(next()?, 16).ok()?;
        let message: String = printable(next().unwrap_or_default());
        let report = Self { message, ..report };
        (report.sum() == sum).then_some(report)
    }

    /// Returns the newest report in the channels of a guest (serial port, guestinfo, KVP, file): the one with the highest number. Lines may be
    /// lost, repeated, reordered or truncated, and mixed with other output.
    pub fn newest<'a>(channels: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        channels.into_iter().filter_map(newest).max_by_key(|report| report.sequence)
    }

    /// Returns the line that [`GuestReport::parse`] reads.
    pub fn line(&self) -> String {
        let message = printable(&self.message);
        let clean = Self { message, ..self.clone() };
        format!("{VERSION} {} {} {} {} {} {:08x} {}", clean.sequence, clean.boot, clean.item, clean.state, clean.code, clean.sum(), clean.message)
    }

    /// Whether the guest gave up: an item used up its attempts, or the plan its restarts or minutes. The guest does not continue without help.
    pub fn is_final_failure(&self) -> bool {
        self.state == state::FAILED
    }

    /// Returns the item of the line and its message. The line about a failed plan names the failed item before a colon.
    pub fn subject(&self) -> (&str, &str) {
        let named = || {
            let (item, rest) = self.message.split_once(": ")?;
            word(item).map(|_| (item, rest))
        };
        let of_plan = self.item == REPORT_PLAN && self.is_final_failure();
        of_plan.then(named).flatten().unwrap_or((&self.item, &self.message))
    }

    fn sum(&self) -> u32 {
        let text = format!("{} {} {} {} {} {}", self.sequence, self.boot, self.item, self.state, self.code, self.message);
        adler32(text.as_bytes())
    }
}

/// Returns the newest report in the text of one channel. A program that shares the serial port may have written to the same line before us.
fn newest(text: &[u8]) -> Option<GuestReport> {
    let text = String::from_utf8_lossy(text);
    let lines = text.rsplit(['\r', '\n', '\0']);
    let starts = lines.flat_map(|line| line.rmatch_indices(VERSION).filter_map(|(at, _)| line.get(at..)));
    // The last line is usually the newest: only lines with a higher number are parsed after it.
    starts.fold(None, |newest: Option<GuestReport>, line| {
        let is_newer = newest.as_ref().is_none_or(|newest| sequence(line).is_some_and(|sequence| sequence > newest.sequence));
        if is_newer { GuestReport::parse(line).or(newest) } else { newest }
    })
}

/// The number of a line, which may turn out to be damaged.
fn sequence(line: &str) -> Option<u64> {
    line.split(' ').nth(1)?.parse().ok()
}

/// Computes Adler-32 (RFC 1950): unlike CRC, it takes only a few lines in PowerShell too.
fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    (b << 16) | a
}

fn word(text: &str) -> Option<String> {
    let valid = (1..=64).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.');
    valid.then(|| text.to_owned())
}

fn printable(text: &str) -> String {
    text.chars().take(REPORT_MESSAGE).map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_damaged_line_is_not_a_report() {
        let report = GuestReport { sequence: 7, boot: 1, item: "join".into(), state: "failed".into(), code: 71, message: "token refused".into() };
        assert_eq!(GuestReport::parse(&report.line()), Some(report.clone()));
        assert_eq!(GuestReport::parse(&report.line().replace("refused", "accepted")), None);
        assert_eq!(GuestReport::parse("capw1 1 1"), None);
    }

    #[test]
    fn a_line_about_the_failed_plan_is_about_its_item() {
        let report = |item: &str, state: &str, message: &str| GuestReport {
            sequence: 1,
            boot: 1,
            item: item.into(),
            state: state.into(),
            code: 71,
            message: message.into(),
        };
        for (item, state, message, subject) in [
            ("join", "failed", "exit: 1", ("join", "exit: 1")),
            ("plan", "failed", "join: exit: 1", ("join", "exit: 1")),
            ("plan", "failed", "no drive in it: none", ("plan", "no drive in it: none")),
            ("plan", "finished", "25 items: true", ("plan", "25 items: true")),
        ] {
            assert_eq!(report(item, state, message).subject(), subject, "{item} {state} {message}");
        }
    }

    fn said(sequence: u64, message: &str) -> GuestReport {
        GuestReport { sequence, boot: 1, item: "join".into(), state: state::RETRY.into(), code: 71, message: message.into() }
    }

    #[test]
    fn the_newest_report_of_all_channels_counts() {
        let serial = format!("BdsDxe: starting Boot0001\r\n\0{}\r\n{}", said(3, "three").line(), &said(4, "cut off").line()[..30]);
        let file = format!("{}\r\n{}\r\n", said(2, "two").line(), said(1, "one").line());
        let one_value = format!("  2026-11-21 INFO capw1 is here: {}", said(5, "<five>").line());
        let newest = |channels: &[&str]| GuestReport::newest(channels.iter().map(|text| text.as_bytes())).map(|report| report.message);
        assert_eq!(newest(&[&serial, &file]).as_deref(), Some("three"));
        assert_eq!(newest(&[&file, &one_value, &serial]).as_deref(), Some("<five>"));
        assert_eq!(newest(&["", "capw1 1 1 a b 0 00000000 "]), None);
    }

    /// A machine that lost its state and its report begins at 1 again: reports before the old numbers are passed count as old.
    #[test]
    fn a_sequence_that_goes_back_stands_still_until_it_has_passed_the_old_one() {
        let before = format!("{}\r\n{}\r\n", said(8, "eight").line(), said(9, "nine").line());
        let newest = |serial: &str| GuestReport::newest([serial.as_bytes()]).unwrap().message;
        assert_eq!(newest(&format!("{before}{}\r\n", said(1, "one").line())), "nine");
        assert_eq!(newest(&format!("{before}{}\r\n", said(10, "ten").line())), "ten");
        // Where only the last report is kept, it counts at once.
        assert_eq!(newest(&said(1, "one").line()), "one");
    }

    /// A change of a line in transit.
    #[derive(Clone, Debug)]
    enum Fate {
        Whole,
        Twice,
        Lost,
        /// The line follows other bytes on the same line.
        Behind(Vec<u8>),
        /// Only that many bytes arrive.
        Cut(usize),
        /// One byte is changed.
        Damaged(usize),
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            3 => Just(Fate::Whole),
            1 => Just(Fate::Twice),
            1 => Just(Fate::Lost),
            1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Fate::Behind),
            1 => (0usize..30).prop_map(Fate::Cut),
            1 => (0usize..30).prop_map(Fate::Damaged),
        ]
    }

    proptest! {
        #[test]
        fn loss_repetition_disorder_and_noise_hide_no_line_that_arrived(
            fates in prop::collection::vec((fate(), "[ -~]{0,40}"), 0..12),
            order in any::<prop::sample::Index>(),
            noise in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut lines: Vec<Vec<u8>> = vec![noise];
            let mut arrived = None;
            for (number, (fate, message)) in (1u64..).zip(&fates) {
                let report = said(number, message);
                let line = report.line().into_bytes();
                let whole = matches!(fate, Fate::Whole | Fate::Twice | Fate::Behind(_));
                arrived = if whole { Some(report) } else { arrived };
                match fate {
                    Fate::Whole => lines.push(line),
                    Fate::Twice => lines.extend([line.clone(), line]),
                    Fate::Lost => {}
                    Fate::Behind(bytes) => lines.push([bytes.clone(), line].concat()),
                    Fate::Cut(length) => lines.push(line[..*length].to_vec()),
                    Fate::Damaged(at) => {
                        let mut line = line;
                        line[*at] = if line[*at] == b'x' { b'y' } else { b'x' };
                        lines.push(line);
                    }
                }
            }
            let middle = order.index(lines.len());
            lines.rotate_left(middle);
            let text = lines.join(&b"\r\n"[..]);
            prop_assert_eq!(GuestReport::newest([text.as_slice()]), arrived);
        }

        #[test]
        fn any_text_is_read_without_panic(text in ".{0,600}") {
            let _ = GuestReport::parse(&text);
        }

        #[test]
        fn every_line_fits_and_comes_back(message in ".{0,600}", sequence in any::<u64>(), code in any::<u32>()) {
            let report = GuestReport { sequence, boot: 2, item: "dir-k".into(), state: "done".into(), code, message };
            let line = report.line();
            prop_assert!(line.len() <= REPORT_LINE && line.is_ascii());
            prop_assert_eq!(GuestReport::parse(&line).unwrap().sequence, sequence);
        }
    }
}
