//! The logs of guests' serial ports. Each read continues where the last read ended, and takes a bounded part, however long the log is.
//! virtlogd keeps a log short: it renames the file and begins a new file.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::Volume;
use super::definitions::Definitions;
use super::link::Session;
use super::refusal::{Error, code};
use super::volumes::Volumes;
use crate::api::name::VmUuid;
use crate::hypervisor::DriverError;
use crate::vm::GuestReport;

/// The most bytes of a log that one request reads. A listing sends at most two such requests for a guest.
pub const PART: u64 = 128 << 10;
/// The most bytes that are kept from the end of a log: a line may come in two parts.
const TAIL: usize = 4096;
/// The number of known bytes that are read again: if they differ, the file is another one.
const OVERLAP: usize = 32;
/// How long a removal waits for the jobs that block the refresh of a pool.
const PATIENCE: Duration = Duration::from_secs(30);
/// The daemon's message for a pool in which volumes are being created.
const JOBS: &str = "asynchronous jobs running";

/// The part of a guest's log that was read.
#[derive(Default)]
pub struct Log {
    offset: u64,
    tail: Vec<u8>,
    newest: Option<GuestReport>,
}

/// The position of a part in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The part ends where the log ended.
    Last,
    /// The log may have more.
    Full,
    /// The known bytes are missing: the file is another one.
    OfAnotherFile,
}

impl Log {
    /// Returns the newest report.
    pub fn report(&self) -> Option<&GuestReport> {
        self.newest.as_ref()
    }

    /// Stores a report if it is at least as new as the known report.
    pub fn note(&mut self, found: Option<GuestReport>) {
        self.newest = match (found, self.newest.take()) {
            (Some(new), Some(old)) if old.sequence > new.sequence => Some(old),
            (new, old) => new.or(old),
        };
    }

    fn overlap(&self) -> &[u8] {
        self.tail.get(self.tail.len().saturating_sub(OVERLAP)..).unwrap_or_default()
    }

    /// Returns the offset of the next read.
    fn from(&self) -> u64 {
        self.offset.saturating_sub(length(self.overlap()))
    }

    /// Adds the bytes that were read from that offset.
    fn add(&mut self, read: &[u8]) -> Part {
        let ends_before = self.offset > 0 && read.is_empty();
        let Some(new) = read.strip_prefix(self.overlap()).filter(|_| !ends_before) else {
            self.skip_to(0);
            return Part::OfAnotherFile;
        };
        self.offset += length(new);
        self.tail.extend(new);
        let found = GuestReport::newest([self.tail.as_slice()]);
        self.note(found);
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
        if length(read) < PART { Part::Last } else { Part::Full }
    }

    /// Skips ahead if the rest of the log is longer than one part; returns whether it skipped.
    fn catch_up(&mut self, end: u64) -> bool {
        let is_behind = end.saturating_sub(self.offset) > PART;
        if is_behind {
            self.skip_to(end - PART);
        }
        is_behind
    }

    fn skip_to(&mut self, offset: u64) {
        self.offset = offset;
        self.tail.clear();
    }

    /// Reads the new part of a log. The value: whether the log is known from its first byte on, as one file.
    pub async fn read(&mut self, session: &Session, log: &Volume) -> Result<bool, Error> {
        let (client, pool) = (&session.client, &session.pool);
        match self.add(&client.download(pool, log, self.from(), PART).await?) {
            Part::Last => Ok(true),
            // The next listing reads the new file.
            Part::OfAnotherFile => Ok(false),
            Part::Full => {
                let is_behind = self.catch_up(client.volume_length(pool, log).await?);
                let more = self.add(&client.download(pool, log, self.from(), PART).await?);
                Ok(!is_behind && more != Part::OfAnotherFile)
            }
        }
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or_default()
}

/// Returns the message for a guest whose log cannot be read. Only an error that is not about this guest fails the listing.
pub fn unread(error: Error) -> Result<String, DriverError> {
    match DriverError::from(error) {
        DriverError::Missing { text, .. } | DriverError::Invalid(text) | DriverError::Transient(text) | DriverError::Capacity(text) => {
            Ok(format!("what its guest reports cannot be read: {text}"))
        }
        error => Err(error),
    }
}

/// Tracks the logs that may have files unknown to libvirt, because virtlogd has renamed them.
#[derive(Default)]
pub struct TurnedOver {
    followed: Mutex<HashMap<VmUuid, Followed>>,
    /// Lets one caller at a time refresh the pool; the callers that wait may then not need to.
    refresh: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    /// The log was read from its first byte on, as one file.
    Whole,
    InParts,
    /// The pool needs a refresh, which has been blocked since then.
    Waits(Instant),
    /// The pool was refreshed.
    Found,
}

impl TurnedOver {
    /// Notes whether a log is known from its first byte on. A log that was once read in parts stays so.
    pub fn note(&self, vm: VmUuid, is_whole: bool) {
        let mut all = self.followed.lock();
        let followed = all.entry(vm).or_insert(Followed::Whole);
        if !is_whole {
            *followed = Followed::InParts;
        }
    }

    pub fn forget(&self, vm: VmUuid) {
        self.followed.lock().remove(&vm);
    }

    /// Lets libvirt find unknown files of a VM. False: libvirt cannot do so now. A log that this process has not followed may have such files
    /// too: one refresh finds the files of all such VMs among `known`.
    pub async fn find(&self, session: &Session, vm: VmUuid, known: &Definitions) -> Result<bool, DriverError> {
        if matches!(self.followed.lock().get(&vm), Some(Followed::Whole | Followed::Found)) {
            return Ok(true);
        }
        let _one = self.refresh.lock().await;
        let since = match self.followed.lock().get(&vm) {
            Some(Followed::Whole | Followed::Found) => return Ok(true),
            Some(Followed::Waits(since)) => *since,
            Some(Followed::InParts) | None => Instant::now(),
        };
        // Taken before the refresh: the log of a VM that is created later may be renamed after the refresh.
        let known = known.all();
        let next = match session.client.refresh_pool(&session.pool).await {
            // After the wait, the next listing reports the remaining files as leftovers.
            Err(Error::Refused { code: code::INTERNAL_ERROR, text }) if text.contains(JOBS) && since.elapsed() < PATIENCE => Followed::Waits(since),
            Err(Error::Refused { code: code::INTERNAL_ERROR, text }) if text.contains(JOBS) => Followed::Found,
            refreshed => {
                refreshed?;
                let mut followed = self.followed.lock();
                for other in known {
                    followed.entry(other).or_insert(Followed::Found);
                }
                Followed::Found
            }
        };
        self.followed.lock().insert(vm, next);
        Ok(next == Followed::Found)
    }
}

/// Finds the log of a VM among the volumes of a pool.
pub fn of<'a>(names: &Volumes, volumes: &'a [Volume]) -> Option<&'a Volume> {
    volumes.iter().find(|volume| volume.name == names.log())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(sequence: u64) -> GuestReport {
        GuestReport { sequence, boot: 1, item: "join".into(), state: "done".into(), code: 0, message: "x".into() }
    }

    #[test]
    fn words_come_in_parts_and_the_newest_counts() {
        let mut log = Log::default();
        let mut file = b"BdsDxe: starting Boot0001\r\n".to_vec();
        assert_eq!((log.add(&file), log.report()), (Part::Last, None));
        let line = report(7).line() + "\n";
        let (start, end) = line.split_at(9);
        for text in [start, end] {
            file.extend(text.as_bytes());
            assert_eq!(log.add(&file[usize::try_from(log.from()).unwrap()..]), Part::Last);
        }
        assert_eq!((log.report(), log.offset), (Some(&report(7)), length(&file)));
        file.extend(vec![b'#'; 32 << 10]);
        file.extend((report(3).line() + "\n").as_bytes());
        log.add(&file[usize::try_from(log.from()).unwrap()..]);
        assert_eq!((log.report(), log.tail.len()), (Some(&report(7)), TAIL), "an old line that is repeated is no news");
    }

    #[test]
    fn a_file_that_is_another_one_is_read_from_its_start() {
        for other in ["", "short", &"another file that is longer than what is known of the first one ".repeat(3)] {
            let mut log = Log::default();
            log.add(&b"what the guest wrote before ".repeat(4));
            log.note(Some(report(5)));
            let from = usize::try_from(log.from()).unwrap();
            assert_eq!(log.add(other.as_bytes().get(from..).unwrap_or_default()), Part::OfAnotherFile, "{other}");
            assert_eq!((log.from(), log.report()), (0, Some(&report(5))), "what was said stays");
            assert_eq!(log.add(other.as_bytes()), Part::Last);
        }
    }

    /// Each case: the length of the log, the bytes that were read, and the offset of the next read.
    #[test]
    fn what_is_far_behind_is_left_out() {
        for (end, offset, from) in
            [(PART, PART, None), (2 * PART, PART, None), (2 * PART + 1, PART, Some(PART + 1)), (64 << 20, 0, Some((64 << 20) - PART))]
        {
            let mut log = Log { offset, ..Log::default() };
            assert_eq!((log.catch_up(end), log.from()), (from.is_some(), from.unwrap_or(offset)), "{end}");
        }
        let mut log = Log::default();
        assert_eq!(log.add(&vec![b'#'; usize::try_from(PART).unwrap()]), Part::Full);
    }

    #[test]
    fn a_log_that_was_once_not_whole_never_is_again() {
        let (turned, vm) = (TurnedOver::default(), VmUuid::of("a"));
        turned.note(vm, true);
        assert_eq!(turned.followed.lock().get(&vm), Some(&Followed::Whole));
        turned.note(vm, false);
        turned.note(vm, true);
        assert_eq!(turned.followed.lock().get(&vm), Some(&Followed::InParts));
    }

    /// Missing rights and broken connections concern the endpoint, not one guest.
    #[test]
    fn an_error_about_one_log_is_told_with_its_guest() {
        let refused = |code, text: &str| unread(Error::Refused { code, text: text.into() });
        assert!(matches!(refused(38, "cannot open '/pool/a.log': Permission denied"), Ok(text) if text.contains("Permission denied")));
        assert!(matches!(refused(code::ACCESS_DENIED, "access denied"), Err(DriverError::Denied(_))));
        assert!(matches!(unread(DriverError::Unreachable("cut".into()).into()), Err(DriverError::Unreachable(_))));
    }
}
