//! Answers that a vCenter gives and the simulator does not: a script answers each request.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::hypervisor::{CloneMode, Vsphere};
use crate::hypervisor::contract::authority::Authority;
use crate::hypervisor::contract::machine::Machine;
use crate::hypervisor::contract::server::{self, Answer, Request};
use crate::hypervisor::drivers::vsphere::driver::VsphereDriver;
use crate::hypervisor::drivers::vsphere::found::name_of;
use crate::hypervisor::drivers::vsphere::session::Sessions;
use crate::hypervisor::login::Login;
use crate::hypervisor::wire::{Fate, Wire};
use crate::hypervisor::{Driver, DriverError, DriverStep};
use crate::vm::{Journal, Observed, Power, Seed, SeedKind, StopMode, VmSpec};

/// The answer to a request.
enum Reply {
    /// The returned values.
    Ok(String),
    Fault(&'static str, &'static str),
    Status(u16),
    /// The connection ends in the middle of the answer.
    Torn,
}

type Script = Arc<dyn Fn(&str, &str) -> Option<Reply> + Send + Sync>;

/// A vCenter in which every search succeeds, unless the script specifies another reply.
fn usual(method: &str, body: &str) -> Reply {
    let reference = |kind: &str, id: &str| format!("<returnval type=\"{kind}\">{id}</returnval>");
    let object = |kind: &str, properties: &str| format!("<returnval><objects><obj type=\"{kind}\">{kind}-1</obj>{properties}</objects></returnval>");
    let values = match method {
        "RetrieveServiceContent" => service_content("one"),
        "Login" => "<returnval><key>key</key><userName>capw</userName></returnval>".to_owned(),
        "FindByInventoryPath" => match body.split("inventoryPath>").nth(1).unwrap_or_default() {
            path if path.starts_with("dc/host") => reference("ResourcePool", "pool"),
            path if path.starts_with("dc/datastore") => reference("Datastore", "ds"),
            path if path.starts_with("dc/vm/windows") => reference("VirtualMachine", "image"),
            path if path.starts_with("dc/vm") => reference("Folder", "folder"),
            _ => reference("Datacenter", "dc"),
        },
        "HasPrivilegeOnEntities" | "FindByUuid" | "FindChild" => String::new(),
        "RetrievePropertiesEx" if body.contains("config.firmware") => object(
            "VirtualMachine",
            r#"<propSet><name>config.firmware</name><val>efi</val></propSet><propSet><name>config.hardware.device</name><val><VirtualDevice xsi:type="VirtualDisk"><key>2000</key><backing><fileName>[ds] i/i.vmdk</fileName></backing><controllerKey>1000</controllerKey><unitNumber>0</unitNumber><capacityInKB>10485760</capacityInKB></VirtualDevice><VirtualDevice xsi:type="VirtualVmxnet3"><key>4000</key></VirtualDevice></val></propSet>"#,
        ),
        "RetrievePropertiesEx" => object("Folder", ""),
        "CloneVM_Task" => reference("Task", "task-1"),
        _ => String::new(),
    };
    Reply::Ok(values)
}

fn service_content(instance: &str) -> String {
    format!(
        r#"<returnval><rootFolder type="Folder">g</rootFolder><propertyCollector type="PropertyCollector">pc</propertyCollector><about><fullName>VMware vCenter Server 8.0.3 build-1</fullName><apiType>VirtualCenter</apiType><instanceUuid>{instance}</instanceUuid></about><sessionManager type="SessionManager">sm</sessionManager><authorizationManager type="AuthorizationManager">am</authorizationManager><searchIndex type="SearchIndex">si</searchIndex><taskManager type="TaskManager">tm</taskManager><fileManager type="FileManager">fm</fileManager></returnval>"#
    )
}

fn task(state: &str, fault: &str, text: &str) -> Reply {
    let error =
        format!(r#"<propSet><name>info.error</name><val><fault xsi:type="{fault}"/><localizedMessage>{text}</localizedMessage></val></propSet>"#);
    let error = if fault.is_empty() { String::new() } else { error };
    Reply::Ok(format!(
        r#"<returnval><objects><obj type="Task">task-1</obj><propSet><name>info.state</name><val>{state}</val></propSet>{error}</objects></returnval>"#
    ))
}

async fn serve(script: Script) -> (String, Login) {
    let authority = Authority::new("lab");
    let answers = move |request: &Request| {
        let body = &request.body;
        let method = body.split("<soapenv:Body><").nth(1).unwrap_or_default().split(' ').next().unwrap_or_default().to_owned();
        let (status, text) = match script(&method, body).unwrap_or_else(|| usual(&method, body)) {
            Reply::Ok(values) => (200, envelope(&format!("<{method}Response xmlns=\"urn:vim25\">{values}</{method}Response>"))),
            Reply::Fault(kind, text) => (
                500,
                envelope(&format!(
                    "<soapenv:Fault><faultcode>x</faultcode><faultstring>{text}</faultstring><detail><{kind}Fault xmlns=\"urn:vim25\" xsi:type=\"{kind}\"/></detail></soapenv:Fault>"
                )),
            ),
            Reply::Status(status) => (status, String::new()),
            Reply::Torn => return Answer::Torn,
        };
        Answer::Whole { head: format!("{status} X\r\nSet-Cookie: vmware_soap_session=\"x\"; Path=/"), body: text }
    };
    let server = server::serve(&authority, Arc::new(answers)).await;
    let values = [("username", "capw"), ("password", "secret"), ("ca.crt", &authority.pem)];
    (server, Login::new("lab/vcenter".into(), values.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into()))
}

fn envelope(body: &str) -> String {
    format!(
        r#"<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>{body}</soapenv:Body></soapenv:Envelope>"#
    )
}

async fn driver(script: impl Fn(&str, &str) -> Option<Reply> + Send + Sync + 'static) -> VsphereDriver {
    let (server, login) = serve(Arc::new(script)).await;
    let settings = Vsphere {
        server,
        datacenter: "dc".into(),
        folder: Some("capw".into()),
        resource_pool: "c/Resources".into(),
        datastore: "ds".into(),
        ..Vsphere::default()
    };
    VsphereDriver::new(settings, &login, &Sessions::default(), Wire::new(Arc::new(|_| Fate::Pass))).unwrap()
}

fn machine() -> Machine {
    let spec = VmSpec { tpm: false, ..crate::hypervisor::contract::spec() };
    let mut machine = Machine::new("scripted", spec);
    machine.seed = Seed::GuestInfo([("guestinfo.userdata".to_owned(), "canary".to_owned())].into());
    machine
}

#[tokio::test]
async fn permissions_that_are_missing_are_named_and_what_may_not_be_read_is_not_absent() {
    let lacking = |method: &str, _: &str| {
        (method == "HasPrivilegeOnEntities").then(|| Reply::Ok("<returnval><entity type=\"Folder\">x</entity><privAvailability><privId>VirtualMachine.Inventory.Delete</privId><isGranted>false</isGranted></privAvailability><privAvailability><privId>System.Read</privId><isGranted>true</isGranted></privAvailability></returnval>".into()))
    };
    let lacks = driver(lacking).await.describe().await.unwrap().lacks;
    assert_eq!(lacks[0], "VirtualMachine.Inventory.Delete on the folder");
    assert!(lacks.iter().all(|text| !text.contains("System.Read")), "{lacks:?}");

    // The VM is visible, its mark is not.
    let hidden = |method: &str, body: &str| {
        match method {
        "FindByUuid" => Some(Reply::Ok("<returnval type=\"VirtualMachine\">vm-1</returnval>".into())),
        "RetrievePropertiesEx" if body.contains("capw.mark") => Some(Reply::Ok("<returnval><objects><obj type=\"VirtualMachine\">vm-1</obj><missingSet><path>config.extraConfig</path><fault><fault xsi:type=\"NoPermission\"/><localizedMessage>no</localizedMessage></fault></missingSet></objects></returnval>".into())),
        _ => None,
    }
    };
    let error = driver(hidden).await.observe(&machine().key, &Journal::new()).await.unwrap_err();
    assert!(matches!(&error, DriverError::Denied(text) if text.contains("config.extraConfig")), "{error}");
}

#[tokio::test]
async fn another_vcenter_at_the_address_is_not_believed() {
    let logins = Arc::new(Mutex::new(0));
    let told = logins.clone();
    let driver = driver(move |method, body| match method {
        "RetrieveServiceContent" => {
            *told.lock() += 1;
            (*told.lock() > 1).then(|| Reply::Ok(service_content("two")))
        }
        // The vCenter was reinstalled: it knows no session.
        "FindByUuid" if body.contains("FindByUuid") => Some(Reply::Fault("NotAuthenticated", "The session is not authenticated.")),
        _ => None,
    })
    .await;
    assert_eq!(driver.describe().await.unwrap().id, "vCenter one");
    for _ in 0..2 {
        let error = driver.observe(&machine().key, &Journal::new()).await.unwrap_err();
        assert!(matches!(&error, DriverError::EndpointChanged(text) if text.contains("two") && text.contains("one")), "{error}");
    }
}

#[tokio::test]
async fn a_clone_that_fails_says_why_and_is_tried_again() {
    for (fault, text, class) in [
        ("NoDiskSpace", "Insufficient disk space on datastore 'ds'.", "capacity"),
        ("InvalidHostState", "The operation is not allowed in the current state of the host.", "invalid"),
        ("FileNotFound", "File [ds] i/i-000001.vmdk was not found", "invalid"),
        ("InsufficientMemoryResourcesFault", "not enough memory", "capacity"),
        ("NoPermission", "denied", "denied"),
        ("TaskInProgress", "another task", "transient"),
    ] {
        let clones = Arc::new(Mutex::new(0));
        let told = clones.clone();
        let driver = driver(move |method, body| match method {
            "CloneVM_Task" => {
                *told.lock() += 1;
                None
            }
            "RetrievePropertiesEx" if body.contains("info.state") => Some(task("error", fault, text)),
            _ => None,
        })
        .await;
        let machine = machine();
        assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Started { .. })));
        // As in production, one write stores the failure and the journal without the task.
        let error = machine.advance(&driver).await.unwrap_err();
        assert!(error.label() == class && error.to_string().contains(text), "{fault}: {error:?}");
        assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Started { .. })), "the cause may be gone");
        assert_eq!(*clones.lock(), 2);
    }
}

/// At the end of the clone as at its beginning: nothing is created twice, and the next try begins after the failure was reported.
#[tokio::test]
async fn a_clone_that_fails_at_its_end_says_why_and_is_tried_again() {
    let (clones, looks) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let told = clones.clone();
    let driver = driver(move |method, body| match method {
        "CloneVM_Task" => {
            *told.lock() += 1;
            None
        }
        "RetrievePropertiesEx" if body.contains("info.state") => {
            *looks.lock() += 1;
            let is_over = *looks.lock() > 4;
            Some(if is_over { task("error", "NoDiskSpace", "Insufficient disk space on datastore 'ds'.") } else { task("running", "", "") })
        }
        _ => None,
    })
    .await;
    let machine = machine();
    assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Started { .. })));
    let failed = loop {
        match machine.advance(&driver).await {
            Ok(DriverStep::Wait { .. }) => assert_eq!(*clones.lock(), 1),
            other => break other.unwrap_err(),
        }
    };
    assert!(matches!(&failed, DriverError::Capacity(text) if text.contains("datastore 'ds'")), "{failed:?}");
    assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Started { .. })), "the cause may be gone");
    assert_eq!(*clones.lock(), 2);
}

/// The snapshot existed a moment ago. Whether the vCenter reports the loss at once or by its task, the image is checked again.
#[tokio::test]
async fn a_snapshot_that_vanishes_is_told_at_the_next_try() {
    for by_task in [false, true] {
        let is_gone = Arc::new(Mutex::new(false));
        let now = is_gone.clone();
        let driver = driver(move |method, body| match method {
            "RetrievePropertiesEx" if body.contains("config.firmware") && !*now.lock() => {
                let Reply::Ok(image) = usual(method, body) else { return None };
                let snapshot =
                    r#"<propSet><name>snapshot.currentSnapshot</name><val type="VirtualMachineSnapshot">snapshot-1</val></propSet></objects>"#;
                Some(Reply::Ok(image.replace("</objects>", snapshot)))
            }
            "CloneVM_Task" => {
                *now.lock() = true;
                (!by_task).then_some(Reply::Fault("ManagedObjectNotFound", "The object has already been deleted"))
            }
            "RetrievePropertiesEx" if body.contains("info.state") => Some(task("error", "FileNotFound", "File [ds] i/i-000001.vmdk was not found")),
            _ => None,
        })
        .await;
        let driver = VsphereDriver { settings: Vsphere { clone: CloneMode::Linked, ..driver.settings.clone() }, ..driver };
        let machine = machine();
        if by_task {
            assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Started { .. })));
        }
        let failed = machine.advance(&driver).await.unwrap_err();
        assert!(matches!((&failed, by_task), (DriverError::Transient(_), false) | (DriverError::Invalid(_), true)), "{failed}");
        let error = machine.advance(&driver).await.unwrap_err();
        assert!(matches!(&error, DriverError::Invalid(text) if text.contains("has no snapshot") && text.contains("set clone to Full")), "{error}");
        *is_gone.lock() = false;
        tokio::time::pause();
        tokio::time::advance(crate::hypervisor::fresh::FRESH).await;
        tokio::time::resume();
        driver.check(&machine.spec, SeedKind::GuestInfo).await.unwrap();
    }
}

/// While its services start, the vCenter is unreachable; then it knows neither the session nor the task, and the machine is created anyway.
#[tokio::test]
async fn a_vcenter_that_restarts_during_a_clone_is_waited_for() {
    let phase = Arc::new(Mutex::new("before"));
    let now = phase.clone();
    let driver = driver(move |method, body| {
        let phase = *now.lock();
        match (phase, method) {
            ("starts", _) => Some(Reply::Status(503)),
            ("ends", "RetrievePropertiesEx") => {
                *now.lock() = "after";
                Some(Reply::Fault("NotAuthenticated", "The session is not authenticated."))
            }
            ("after", "RetrievePropertiesEx") if body.contains("info.state") => Some(Reply::Fault("ManagedObjectNotFound", "gone")),
            _ => None,
        }
    })
    .await;
    let machine = machine();
    assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Started { .. })));
    *phase.lock() = "starts";
    let error = machine.advance(&driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Unreachable(text) if text.contains("starting")), "{error}");
    *phase.lock() = "ends";
    let error = machine.advance(&driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Transient(text) if text.contains("made again")), "{error}");
    assert!(matches!(machine.advance(&driver).await, Ok(DriverStep::Started { .. })));
}

#[tokio::test]
async fn a_name_that_is_taken_by_what_is_not_seen_is_a_matter_of_permissions() {
    let driver = driver(|method, body| match method {
        "RetrievePropertiesEx" if body.contains("info.state") => Some(task("error", "DuplicateName", "The name already exists.")),
        _ => None,
    })
    .await;
    let machine = machine();
    let _ = machine.advance(&driver).await.unwrap();
    let error = machine.advance(&driver).await.unwrap_err();
    assert!(matches!(&error, DriverError::Denied(text) if text.contains("propagation")), "{error}");
}

#[tokio::test]
async fn replies_that_are_lost_torn_or_of_a_server_that_starts_are_told_apart() {
    let during_clone = async |reply: fn() -> Reply| {
        let driver = driver(move |method, _| (method == "CloneVM_Task").then(reply)).await;
        machine().advance(&driver).await.unwrap_err()
    };
    for reply in [|| Reply::Torn, || Reply::Ok("<returnval".into()), || Reply::Ok(String::new()), || Reply::Status(503)] {
        let error = during_clone(reply).await;
        assert!(matches!(error, DriverError::Unknown(_)), "it may have been done: {error:?}");
        assert!(!format!("{error:?}").contains("canary"));
    }
    let starting = driver(|method, _| (method == "FindByUuid").then_some(Reply::Status(503))).await;
    let error = starting.observe(&machine().key, &Journal::new()).await.unwrap_err();
    assert!(matches!(&error, DriverError::Unreachable(text) if text.contains("starting")), "{error}");
    let error = driver(|method, _| (method == "FindByUuid").then_some(Reply::Torn)).await.observe(&machine().key, &Journal::new()).await.unwrap_err();
    assert!(matches!(error, DriverError::Unreachable(_)), "{error}");
    let absent = driver(|_, _| None).await.observe(&machine().key, &Journal::new()).await;
    assert_eq!(absent, Ok(Observed::Absent));
}

/// A VM whose datastore is lost has only a name: it is neither ours nor foreign, and is not touched.
#[tokio::test]
async fn a_vm_that_cannot_be_read_is_told_and_waited_for() {
    let inaccessible = |method: &str, body: &str| {
        match method {
        "FindChild" => Some(Reply::Ok("<returnval type=\"VirtualMachine\">vm-1</returnval>".into())),
        "RetrievePropertiesEx" if body.contains("capw.mark") => Some(Reply::Ok(
            "<returnval><objects><obj type=\"VirtualMachine\">vm-1</obj><propSet><name>runtime.connectionState</name><val>inaccessible</val></propSet></objects></returnval>".into(),
        )),
        method if method.ends_with("_Task") => panic!("{method}"),
        _ => None,
    }
    };
    let (driver, machine) = (driver(inaccessible).await, machine());
    assert_eq!(machine.present(&driver).await.power, Power::Creating);
    for error in [machine.advance(&driver).await.unwrap_err(), machine.retire(&driver, StopMode::Hard).await.unwrap_err()] {
        assert!(matches!(&error, DriverError::Invalid(text) if text.contains("inaccessible") && text.contains("datastore")), "{error}");
    }
}

/// A guest with VMware Tools gets a shutdown request once in a while; a guest without VMware Tools gets a request at every pass.
#[tokio::test]
async fn a_guest_that_shuts_down_is_asked_once_in_a_while() {
    for (has_tools, within, later) in [(true, 1, 2), (false, 3, 4)] {
        let (asked, machine) = (Arc::new(Mutex::new(0)), machine());
        let (told, mark) = (asked.clone(), machine.key.owner_mark());
        let (uuid, name) = (machine.key.vm.0, name_of(&machine.key));
        let driver = driver(move |method, body| match method {
            "FindByUuid" => Some(Reply::Ok("<returnval type=\"VirtualMachine\">vm-1</returnval>".into())),
            "RetrievePropertiesEx" if body.contains("capw.mark") => {
                let values = [
                    ("name", name.as_str()),
                    ("config.instanceUuid", &uuid.to_string()),
                    ("config.hardware.numCPU", "2"),
                    ("runtime.powerState", "poweredOn"),
                    ("config.extraConfig[\"capw.mark\"]", &format!("<value>{mark}</value>")),
                ];
                let values = values.map(|(path, value)| format!("<propSet><name>{}</name><val>{value}</val></propSet>", path.replace('"', "&quot;")));
                Some(Reply::Ok(format!("<returnval><objects><obj type=\"VirtualMachine\">vm-1</obj>{}</objects></returnval>", values.concat())))
            }
            "ShutdownGuest" => {
                *told.lock() += 1;
                (!has_tools).then_some(Reply::Fault("ToolsUnavailable", "VMware Tools is not running."))
            }
            _ => None,
        })
        .await;
        let look = async || assert!(matches!(machine.retire(&driver, StopMode::Graceful).await, Ok(DriverStep::Wait { .. })));
        for _ in 0..3 {
            look().await;
        }
        assert_eq!(*asked.lock(), within);
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(31)).await;
        tokio::time::resume();
        look().await;
        assert_eq!(*asked.lock(), later);
    }
}
