//! What guests write to their serial ports: read from where the last look ended, and no more than a bounded part at a time, however long the
//! log is. virtlogd keeps a log short by giving the file another name and beginning a new one.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::Volume;
use super::link::Session;
use super::listing::Definitions;
use super::refusal::{Error, code};
use super::volumes::Volumes;
use crate::api::name::VmUuid;
use crate::hypervisor::DriverError;
use crate::vm::GuestReport;

/// Most that one request reads of a log. A listing makes at most two of them for a guest.
pub const PART: u64 = 128 << 10;
/// Most that is kept of what a guest said last: a line may come in two parts.
const TAIL: usize = 4096;
/// So much of what is known is read again: if it is not there, the file is another one.
const OVERLAP: usize = 32;
/// A removal waits so long for the jobs that keep a pool from being read again.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is said of a pool that volumes are made in.
const JOBS: &str = "asynchronous jobs running";

/// What was read of a guest's log.
#[derive(Default)]
pub struct Log {
    offset: u64,
    tail: Vec<u8>,
    newest: Option<GuestReport>,
}

/// What a part of a log shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// It ends where the log ended.
    Last,
    /// There may be more.
    Full,
    /// What was known is not there: the file is another one.
    OfAnotherFile,
}

impl Log {
    /// The newest report.
    pub fn report(&self) -> Option<&GuestReport> {
        self.newest.as_ref()
    }

    /// Takes a report that is at least as new as the one that is known.
    pub fn note(&mut self, found: Option<GuestReport>) {
        self.newest = match (found, self.newest.take()) {
            (Some(new), Some(old)) if old.sequence > new.sequence => Some(old),
            (new, old) => new.or(old),
        };
    }

    fn overlap(&self) -> &[u8] {
        self.tail.get(self.tail.len().saturating_sub(OVERLAP)..).unwrap_or_default()
    }

    /// From where the next part is read.
    fn from(&self) -> u64 {
        self.offset.saturating_sub(length(self.overlap()))
    }

    /// Takes what was read from there on.
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

    /// Leaves out what is so far behind the end of the log that it would take more than one part to get there.
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

    /// Reads what is new. The value: whether the log is known from its first byte on, as one file.
    pub async fn read(&mut self, session: &Session, log: &Volume) -> Result<bool, Error> {
        let (client, pool) = (&session.client, &session.pool);
        match self.add(&client.download(pool, log, self.from(), PART).await?) {
            Part::Last => Ok(true),
            // A new file is read at the next look.
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

/// What is said of a guest whose log cannot be read. An error is worth failing the listing only if it is not about this guest.
pub fn unread(error: Error) -> Result<String, DriverError> {
    match DriverError::from(error) {
        DriverError::Missing { text, .. } | DriverError::Invalid(text) | DriverError::Transient(text) | DriverError::Capacity(text) => {
            Ok(format!("what its guest reports cannot be read: {text}"))
        }
        error => Err(error),
    }
}

/// Which logs may have files that libvirt does not know: it has not made those that virtlogd has given another name.
#[derive(Default)]
pub struct TurnedOver {
    followed: Mutex<HashMap<VmUuid, Followed>>,
    /// One at a time reads the pool again, which those who wait may then spare themselves.
    refresh: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    /// From its first byte on, as one file.
    Whole,
    InParts,
    /// The pool must be read again, and could not be since then.
    Waits(Instant),
    /// The pool was read again.
    Found,
}

impl TurnedOver {
    /// Notes whether a log is known from its first byte on. One that was not once never is again.
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

    /// Lets libvirt find the files of a VM that it does not know. False: it cannot now. A log that this process has not followed may have some,
    /// too: those of all such VMs among `known` are found at once.
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
        // A VM that comes meanwhile may begin its log again after that.
        let known = known.all();
        let next = match session.client.refresh_pool(&session.pool).await {
            // Files that are left then are told as leftovers.
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

/// The log of a VM among the volumes of a pool.
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

    /// How long a log is, what was read of it, and from where it is read on.
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

    /// Rights and connections are those of the endpoint.
    #[test]
    fn an_error_about_one_log_is_told_with_its_guest() {
        let refused = |code, text: &str| unread(Error::Refused { code, text: text.into() });
        assert!(matches!(refused(38, "cannot open '/pool/a.log': Permission denied"), Ok(text) if text.contains("Permission denied")));
        assert!(matches!(refused(code::ACCESS_DENIED, "access denied"), Err(DriverError::Denied(_))));
        assert!(matches!(unread(DriverError::Unreachable("cut".into()).into()), Err(DriverError::Unreachable(_))));
    }
}
