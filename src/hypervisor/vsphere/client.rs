//! The requests of this driver, typed. Each is one method of the vSphere API and passes the wire.

use std::sync::Arc;
use std::time::Duration;

use roxmltree::Node;

use super::fault::{Error, Fault, NOT_FOUND};
use super::session::{Effect, Open, Session};
use super::soap::{Answer, Reference, child, children, method, text_at, text_of, unreadable};
use crate::hypervisor::DriverError;
use crate::hypervisor::wire::Wire;
use crate::hypervisor::xml::{Element, element};

/// A session with the wire that its requests pass.
pub struct Client {
    session: Arc<Session>,
    wire: Wire,
}

/// How a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    Running,
    /// With what it made.
    Succeeded(Option<Reference>),
    Failed(Fault),
    /// The vCenter has forgotten it.
    Forgotten,
}

/// The properties of one object.
#[derive(Clone, Copy)]
pub struct Properties<'a, 'input>(Node<'a, 'input>);

impl<'a, 'input> Properties<'a, 'input> {
    pub fn object(&self) -> Option<Reference> {
        child(self.0, "obj").and_then(Reference::of)
    }

    pub fn get(&self, path: &str) -> Option<Node<'a, 'input>> {
        children(self.0, "propSet").find(|set| text_at(*set, &["name"]) == Some(path)).and_then(|set| child(set, "val"))
    }

    pub fn text(&self, path: &str) -> Option<&'a str> {
        self.get(path).map(text_of).filter(|text| !text.is_empty())
    }

    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    pub fn reference(&self, path: &str) -> Option<Reference> {
        self.get(path).and_then(Reference::of)
    }

    /// A property that the credentials may not read must not pass for one that is not set.
    fn denied(&self) -> Option<Error> {
        let mut missing =
            children(self.0, "missingSet").filter_map(|set| Some((text_at(set, &["path"])?, Fault::of_localized(child(set, "fault")?))));
        let (path, fault) = missing.find(|(_, fault)| fault.is(&["NoPermission"]))?;
        let of = self.object().map(|object| object.id).unwrap_or_default();
        Some(DriverError::Denied(format!("the credentials may not read {path} of {of}: {}. Grant System.Read, with propagation", fault.text)).into())
    }
}

/// Which properties of which objects: of one, or of all that a list of it names.
pub struct Selection<'s> {
    pub of: &'s Reference,
    /// Type of the objects.
    pub kind: &'static str,
    pub paths: &'s [String],
    /// `None`: of the object itself. Else the property that lists the objects, which is followed as long as it leads to objects of the
    /// same type as `of` if `deep`.
    pub through: Option<Through>,
}

#[derive(Clone, Copy)]
pub struct Through {
    pub kind: &'static str,
    pub path: &'static str,
    pub deep: bool,
}

impl Client {
    pub fn new(session: Arc<Session>, wire: Wire) -> Self {
        Self { session, wire }
    }

    pub fn server(&self) -> &str {
        self.session.server()
    }

    pub async fn open(&self) -> Result<Arc<Open>, DriverError> {
        self.session.open(&self.wire).await
    }

    /// What is at a path of the inventory.
    pub async fn find_path(&self, path: &str) -> Result<Option<Reference>, Error> {
        let request = |open: &Open| method("FindByInventoryPath", &open.search).with(element("inventoryPath").text(path));
        self.read("FindByInventoryPath", request).await?.value(Reference::of)
    }

    pub async fn find_child(&self, folder: &Reference, name: &str) -> Result<Option<Reference>, Error> {
        let request = |open: &Open| method("FindChild", &open.search).with(folder.element("entity")).with(element("name").text(name));
        self.read("FindChild", request).await?.value(Reference::of)
    }

    /// The VM with that instance UUID, wherever it is.
    pub async fn find_vm(&self, uuid: uuid::Uuid) -> Result<Option<Reference>, Error> {
        let request = |open: &Open| {
            method("FindByUuid", &open.search)
                .with(element("uuid").text(uuid))
                .with(element("vmSearch").text(true))
                .with(element("instanceUuid").text(true))
        };
        self.read("FindByUuid", request).await?.value(Reference::of)
    }

    /// What `read` makes of the properties of each object that is selected.
    pub async fn properties<T>(&self, selection: &Selection<'_>, mut read: impl FnMut(Properties) -> Option<T>) -> Result<Vec<T>, Error> {
        let request = |open: &Open| method("RetrievePropertiesEx", &open.collector).with(filter("specSet", selection)).with(element("options"));
        let mut answer = self.read("RetrievePropertiesEx", request).await?;
        let mut found = Vec::new();
        loop {
            let (denied, token) = page(&answer, &mut found, &mut read)?;
            if let Some(error) = denied {
                return Err(error);
            }
            let Some(token) = token else { return Ok(found) };
            let request = |open: &Open| method("ContinueRetrievePropertiesEx", &open.collector).with(element("token").text(&token));
            answer = self.read("ContinueRetrievePropertiesEx", request).await?;
        }
    }

    /// Properties of one object; `None`: it is not there any more.
    pub async fn of_one<T>(
        &self,
        object: &Reference,
        kind: &'static str,
        paths: &[String],
        read: impl FnMut(Properties) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        match self.properties(&Selection { of: object, kind, paths, through: None }, read).await {
            Err(error) if error.is(&[NOT_FOUND]) => Ok(None),
            found => Ok(found?.into_iter().next()),
        }
    }

    pub async fn task(&self, id: &str) -> Result<TaskState, Error> {
        let paths = ["info.state", "info.result", "info.error"].map(str::to_owned);
        let task = Reference::new("Task", id);
        let state = self.of_one(&task, "Task", &paths, |task| {
            Some(match task.text("info.state")? {
                "success" => TaskState::Succeeded(task.reference("info.result")),
                "error" => TaskState::Failed(
                    task.get("info.error").map(Fault::of_localized).unwrap_or_else(|| Fault { kind: String::new(), text: "a task failed".into() }),
                ),
                _ => TaskState::Running,
            })
        });
        Ok(state.await?.unwrap_or(TaskState::Forgotten))
    }

    /// The privileges, among those of each object, that the session lacks there.
    pub async fn lacking(&self, object: &Reference, privileges: &[&str]) -> Result<Vec<String>, Error> {
        let request = |open: &Open| {
            method("HasPrivilegeOnEntities", &open.authorization)
                .with(object.element("entity"))
                .with(element("sessionId").text(&open.key))
                .with_all(privileges.iter().map(|id| element("privId").text(id)))
        };
        let found = self.read("HasPrivilegeOnEntities", request).await?.values(|entity| {
            let lacking = children(entity, "privAvailability").filter(|it| text_at(*it, &["isGranted"]) != Some("true"));
            Some(lacking.filter_map(|it| text_at(it, &["privId"]).map(str::to_owned)).collect::<Vec<_>>())
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The tasks that these begin are given by their id.
    pub async fn clone_vm(&self, image: &Reference, folder: &Reference, name: &str, spec: &Element) -> Result<String, Error> {
        let arguments = [folder.element("folder"), element("name").text(name), spec.clone()];
        self.begin("CloneVM_Task", image, &arguments).await
    }

    pub async fn reconfigure(&self, vm: &Reference, spec: &Element) -> Result<String, Error> {
        self.begin("ReconfigVM_Task", vm, std::slice::from_ref(spec)).await
    }

    pub async fn power_on(&self, vm: &Reference) -> Result<String, Error> {
        self.begin("PowerOnVM_Task", vm, &[]).await
    }

    pub async fn power_off(&self, vm: &Reference) -> Result<String, Error> {
        self.begin("PowerOffVM_Task", vm, &[]).await
    }

    /// With its disks.
    pub async fn destroy(&self, vm: &Reference) -> Result<String, Error> {
        self.begin("Destroy_Task", vm, &[]).await
    }

    /// Asks the guest to shut down.
    pub async fn shut_down(&self, vm: &Reference) -> Result<(), Error> {
        self.change("ShutdownGuest", |_| method("ShutdownGuest", vm)).await.map(|_| ())
    }

    pub async fn cancel(&self, task: &str) -> Result<(), Error> {
        self.change("CancelTask", |_| method("CancelTask", &Reference::new("Task", task))).await.map(|_| ())
    }

    /// A collector that tells of changes of these properties of the VMs in a folder.
    pub async fn watch(&self, folder: &Reference, paths: &[String]) -> Result<Reference, Error> {
        let nameless = || unreadable(&"it names nothing that was made");
        let made = self.read("CreatePropertyCollector", |open| method("CreatePropertyCollector", &open.collector)).await?;
        let collector = made.value(Reference::of)?.ok_or_else(nameless)?;
        let through = Some(Through { kind: "Folder", path: "childEntity", deep: false });
        let selection = Selection { of: folder, kind: "VirtualMachine", paths, through };
        let request = |_: &Open| method("CreateFilter", &collector).with(filter("spec", &selection)).with(element("partialUpdates").text(true));
        self.read("CreateFilter", request).await?.value(Reference::of)?.ok_or_else(nameless)?;
        Ok(collector)
    }

    /// Waits until something has changed since that version; `None`: nothing has for so long. The first version is empty.
    pub async fn wait_for_updates(&self, collector: &Reference, version: &str, longest: Duration) -> Result<Option<String>, Error> {
        let options = element("options").with(element("maxWaitSeconds").text(longest.as_secs()));
        let request = |_: &Open| method("WaitForUpdatesEx", collector).with(element("version").text(version)).with(options.clone());
        self.read("WaitForUpdatesEx", request).await?.value(|set| text_at(set, &["version"]).map(str::to_owned))
    }

    async fn begin(&self, name: &'static str, this: &Reference, arguments: &[Element]) -> Result<String, Error> {
        let answer = self.change(name, |_| method(name, this).with_all(arguments.iter().cloned())).await?;
        let task = answer.value(Reference::of)?.map(|task| task.id);
        // It was begun all the same.
        task.ok_or_else(|| DriverError::Unknown(format!("the vCenter did not name the task of {name}")).into())
    }

    async fn read(&self, name: &'static str, request: impl Fn(&Open) -> Element) -> Result<Answer, Error> {
        self.session.call(&self.wire, name, Effect::Reads, request).await
    }

    async fn change(&self, name: &'static str, request: impl Fn(&Open) -> Element) -> Result<Answer, Error> {
        self.session.call(&self.wire, name, Effect::Changes, request).await
    }
}

type Page = (Option<Error>, Option<String>);

fn page<T>(answer: &Answer, found: &mut Vec<T>, read: &mut impl FnMut(Properties) -> Option<T>) -> Result<Page, Error> {
    let page = answer.value(|result| {
        let mut denied = None;
        for object in children(result, "objects").map(Properties) {
            denied = denied.or_else(|| object.denied());
            found.extend(read(object));
        }
        Some((denied, text_at(result, &["token"]).map(str::to_owned)))
    })?;
    Ok(page.unwrap_or_default())
}

fn filter(name: &'static str, selection: &Selection) -> Element {
    let properties =
        element("propSet").with(element("type").text(selection.kind)).with_all(selection.paths.iter().map(|path| element("pathSet").text(path)));
    let through = selection.through.map(|Through { kind, path, deep }| {
        let again = deep.then(|| super::soap::typed("selectSet", "SelectionSpec").with(element("name").text("all")));
        super::soap::typed("selectSet", "TraversalSpec")
            .with(element("name").text("all"))
            .with(element("type").text(kind))
            .with(element("path").text(path))
            .with(element("skip").text(false))
            .with_all(again)
    });
    let objects = element("objectSet").with(selection.of.element("obj")).with(element("skip").text(selection.through.is_some())).with_all(through);
    element(name).with(properties).with(objects)
}
