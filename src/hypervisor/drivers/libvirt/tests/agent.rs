//! The reports of guests through the QEMU guest agent. The daemon and QEMU are real; the agent is simulated, since the guest is a boot sector.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use capw_libvirtd::Daemon;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::between::{Answer, Between};
use super::rig::LibvirtEndpoint;
use crate::api::hypervisor::GuestWords;
use crate::hypervisor::Wanted;
use crate::hypervisor::contract::TestEndpoint;
use crate::hypervisor::contract::machine::{MANY, Machine, Requests};
use crate::hypervisor::drivers::libvirt::rpc::QEMU;
use crate::hypervisor::drivers::libvirt::volumes::Volumes;
use crate::hypervisor::drivers::libvirt::xdr::{Decoder, Encoder};
use crate::hypervisor::wire::Fate;
use crate::vm::GuestReport;

/// An agent with one file, which answers like QEMU's own agent.
#[derive(Default)]
struct Agent {
    file: Option<Vec<u8>>,
    is_open: bool,
    asked: Vec<String>,
}

impl Agent {
    fn answer(&mut self, command: &Value) -> Answer {
        let (name, arguments) = (command["execute"].as_str().unwrap(), &command["arguments"]);
        self.asked.push(name.to_owned());
        let returned = match (name, &self.file) {
            ("guest-file-open", Some(_)) => {
                assert_eq!((arguments["path"].as_str(), self.is_open), (Some(r"C:\ProgramData\capw\report.log"), false));
                self.is_open = true;
                json!(1000)
            }
            ("guest-file-read", Some(file)) => {
                assert!(arguments["handle"] == 1000 && arguments["count"].as_u64() >= Some(40 << 10));
                json!({"count": file.len(), "buf-b64": STANDARD.encode(file), "eof": false})
            }
            ("guest-file-close", _) => {
                self.is_open = false;
                json!({})
            }
            _ => return Answer::Refused(1, "internal error: unable to execute QEMU agent command 'guest-file-open': failed to open file"),
        };
        Answer::Played(Encoder::default().optional_text(Some(&json!({"return": returned}).to_string())))
    }
}

#[tokio::test]
async fn the_agent_of_a_guest_gives_its_report() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let mut endpoint = LibvirtEndpoint::new(&daemon);
    endpoint.words = GuestWords::Agent;
    let (agent, played) = (Arc::new(Mutex::new(Agent::default())), Arc::new(Mutex::new(false)));
    let (answers, plays) = (agent.clone(), played.clone());
    let between = Between::new(&daemon.socket(), move |program, procedure, arguments| {
        if program != QEMU || !*plays.lock() {
            return Answer::Real;
        }
        let mut decoder = Decoder(arguments);
        let (_name, _uuid, _id, command) = (decoder.text().unwrap(), decoder.uuid().unwrap(), decoder.u32().unwrap(), decoder.text().unwrap());
        assert_eq!(procedure, 3);
        answers.lock().answer(&serde_json::from_str(&command).unwrap())
    });
    let (driver, machine) = (endpoint.at(between.socket(), Arc::new(|_| Fate::Pass)), Machine::new("agent", endpoint.spec()));
    assert!(machine.create(&*driver, MANY).await);
    assert!(!endpoint.files().contains(&Volumes::of(&machine.key).log()), "{:?}", endpoint.files());
    let wanted = Wanted { awaiting_reports: [machine.key.vm].into() };
    let report = async |wanted: &Wanted| driver.list(wanted).await.unwrap().rows.remove(0).present.report;
    assert_eq!(report(&wanted).await, None, "the daemon itself says that there is no agent");
    *played.lock() = true;
    let holds = |text: Option<String>| agent.lock().file = text.map(String::into_bytes);
    let said = |sequence| GuestReport { sequence, boot: 1, item: "join".into(), state: "done".into(), code: 0, message: "x".into() };
    assert_eq!(report(&wanted).await, None, "there is no report yet");
    holds(Some(format!("{}\r\n{}\r\n", said(1).line(), said(2).line())));
    assert_eq!(report(&wanted).await, Some(said(2)));
    assert!(!agent.lock().is_open, "as long as it is open, the guest cannot write it");
    for lost in [Some("noise".repeat(8 << 10)), Some(String::new()), None] {
        holds(lost);
        assert_eq!(report(&wanted).await, Some(said(2)), "what was said stays");
    }
    agent.lock().asked.clear();
    assert_eq!((report(&Wanted::default()).await, agent.lock().asked.len()), (Some(said(2)), 0), "who is not asked for is not asked");
    assert_eq!(machine.present(&*driver).await.report, Some(said(2)));
}

#[tokio::test]
async fn a_guest_that_has_no_agent_has_no_words() {
    let Some(daemon) = Daemon::start().map(Arc::new) else { return };
    let mut endpoint = LibvirtEndpoint::new(&daemon);
    endpoint.words = GuestWords::Agent;
    let (driver, requests) = Requests::of(&endpoint);
    let machine = Machine::new("silent", endpoint.spec());
    assert!(machine.create(&*driver, MANY).await);
    requests.take();
    let listing = driver.list(&Wanted { awaiting_reports: [machine.key.vm].into() }).await.unwrap();
    assert_eq!((listing.rows.len(), listing.rows[0].present.report.clone()), (1, None));
    assert!(requests.take().ends_with(&["QemuDomainAgentCommand"]), "one question, and no more");
}
