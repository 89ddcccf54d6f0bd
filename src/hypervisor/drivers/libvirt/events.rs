//! The events that the daemon sends, and the request for them.

use super::client::{Client, Domain, domain};
use super::refusal::Error;
use super::xdr::{Decoder, Encoder};
use crate::hypervisor::wire::Effect::Reads;

/// The kinds of events that CAPW registers for (`virDomainEventID`).
const FOLLOWED: [u32; 2] = [LIFECYCLE, REBOOT];
const LIFECYCLE: u32 = 0;
const REBOOT: u32 = 1;
const LIFECYCLE_PROCEDURE: u32 = 318;
const REBOOT_PROCEDURE: u32 = 319;

impl Client {
    /// Registers for the daemon's events about domains.
    pub async fn follow_domains(&self) -> Result<(), Error> {
        const ALL_DOMAINS: u32 = 0;
        for kind in FOLLOWED {
            let arguments = Encoder::default().u32(kind).u32(ALL_DOMAINS);
            self.call("ConnectDomainEventCallbackRegisterAny", Reads, 316, arguments).await?;
        }
        Ok(())
    }
}

/// An event of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub domain: Domain,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The definition of the domain was removed.
    Removed,
    /// The domain no longer runs: it is suspended, stopped, asleep or crashed.
    Stopped,
    /// The domain now runs.
    Started,
    /// The guest has restarted.
    Rebooted,
    Other,
}

impl Event {
    /// Reads an event message from the daemon; `None`: a message of another kind.
    pub fn read(procedure: u32, body: &[u8]) -> Option<Self> {
        let mut decoder = Decoder(body);
        let _callback = decoder.u32().ok().filter(|_| [LIFECYCLE_PROCEDURE, REBOOT_PROCEDURE].contains(&procedure))?;
        let domain = domain(&mut decoder).ok()?;
        let what = if procedure == REBOOT_PROCEDURE { What::Rebooted } else { What::of(decoder.u32().ok()?) };
        Some(Self { domain, what })
    }
}

impl What {
    /// Maps a number of `virDomainEventType`.
    fn of(kind: u32) -> Self {
        match kind {
            1 => Self::Removed,
            3 | 5 | 7 | 8 => Self::Stopped,
            2 => Self::Started,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_event_names_its_domain_and_what_has_happened() {
        let domain = Domain { name: "win-1".into(), uuid: Uuid::from_u128(7) };
        let body = |kind: u32| Encoder::default().u32(0).text(&domain.name).uuid(domain.uuid).u32(3).u32(kind).u32(1).bytes();
        let read = |procedure, body: &[u8]| Event::read(procedure, body).map(|event| (event.domain == domain, event.what));
        for (kind, what) in [
            (0, What::Other),
            (1, What::Removed),
            (2, What::Started),
            (3, What::Stopped),
            (4, What::Other),
            (5, What::Stopped),
            (6, What::Other),
            (7, What::Stopped),
            (8, What::Stopped),
            (99, What::Other),
        ] {
            assert_eq!(read(318, &body(kind)), Some((true, what)), "{kind}");
        }
        assert_eq!(read(319, &body(5)), Some((true, What::Rebooted)));
        assert_eq!((read(333, &body(5)), read(318, &body(5)[..20]), read(319, &[])), (None, None, None));
    }
}
