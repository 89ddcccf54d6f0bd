//! The requests of this driver, typed. Each request is one method of the vSphere API and passes the wire.

use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, unreadable};
use super::datastore_file::DatastoreFile;
use super::fault::{Error, NOT_FOUND};
use super::mirror::Mirror;
use super::properties::Properties;
use super::selection::{Selection, Through, filter, spec};
use super::session::{Open, Session};
use super::soap::{Reference, children, method, text_at};
use super::task::{TASK, Task, TaskState};
use crate::hypervisor::DriverError;
use crate::hypervisor::wire::{Effect, Wire};
use crate::xml::{Element, element};

/// A session and the wire that its requests pass.
pub struct Client {
    session: Arc<Session>,
    wire: Wire,
}

/// The version of a collector's updates.
pub struct Version {
    pub version: String,
    /// No more updates are pending now.
    pub is_whole: bool,
}

impl Client {
    pub fn new(session: Arc<Session>, wire: Wire) -> Self {
        Self { session, wire }
    }

    pub fn server(&self) -> &str {
        self.session.server()
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The state that the vCenter has pushed.
    pub fn mirror(&self) -> &Mirror {
        &self.session.mirror
    }

    pub async fn open(&self) -> Result<Arc<Open>, DriverError> {
        self.session.open(&self.wire).await
    }

    /// Finds the object at a path of the inventory.
    pub async fn find_path(&self, path: &str) -> Result<Option<Reference>, Error> {
        let request = |open: &Open| method("FindByInventoryPath", &open.search).with(element("inventoryPath").text(path));
        self.read("FindByInventoryPath", request).await?.value(Reference::of)
    }

    pub async fn find_child(&self, folder: &Reference, name: &str) -> Result<Option<Reference>, Error> {
        let request = |open: &Open| method("FindChild", &open.search).with(folder.element("entity")).with(element("name").text(name));
        self.read("FindChild", request).await?.value(Reference::of)
    }

    /// Finds the VM with that instance UUID in the whole vCenter.
    pub async fn find_vm(&self, uuid: uuid::Uuid) -> Result<Option<Reference>, Error> {
        let request = |open: &Open| {
            method("FindByUuid", &open.search)
                .with(element("uuid").text(uuid))
                .with(element("vmSearch").text(true))
                .with(element("instanceUuid").text(true))
        };
        self.read("FindByUuid", request).await?.value(Reference::of)
    }

    /// Returns the results of `read` for the properties of each selected object.
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

    /// Reads properties of one object; `None`: the object does not exist any more.
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
        let paths = TASK.map(str::to_owned);
        let task = Reference::new("Task", id);
        let found = self.of_one(&task, "Task", &paths, |task| {
            let mut found = Task::default();
            task.all().for_each(|(path, value)| found.set(path, Some(value)));
            Some(found)
        });
        let found = found.await?.unwrap_or_default();
        let state = found.state();
        if found.has_ended() {
            self.mirror().asked(id, found);
        }
        Ok(state.unwrap_or(TaskState::Forgotten))
    }

    /// Returns the privileges that the session lacks on the object.
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

    /// This method and the methods below that begin a task return the task's id.
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

    /// Changes a cluster; settings that the spec does not name stay as they are.
    pub async fn reconfigure_cluster(&self, cluster: &Reference, spec: &Element) -> Result<String, Error> {
        self.begin("ReconfigureComputeResource_Task", cluster, &[spec.clone(), element("modify").text(true)]).await
    }

    /// Writes a file of a datastore, or replaces it.
    pub async fn upload(&self, datacenter: &str, file: &DatastoreFile, content: Vec<u8>) -> Result<(), DriverError> {
        self.session.upload(&self.wire, datacenter, file, content.into()).await
    }

    pub async fn delete_file(&self, file: &DatastoreFile, datacenter: &Reference) -> Result<String, Error> {
        let files = self.open().await?.files.clone();
        self.begin("DeleteDatastoreFile_Task", &files, &[element("name").text(file.name()), datacenter.element("datacenter")]).await
    }

    /// Destroys a VM and its disks.
    pub async fn destroy(&self, vm: &Reference) -> Result<String, Error> {
        self.begin("Destroy_Task", vm, &[]).await
    }

    /// Requests a shutdown of the guest.
    pub async fn shut_down(&self, vm: &Reference) -> Result<(), Error> {
        self.change("ShutdownGuest", |_| method("ShutdownGuest", vm)).await.map(|_| ())
    }

    pub async fn cancel(&self, task: &str) -> Result<(), Error> {
        self.change("CancelTask", |_| method("CancelTask", &Reference::new("Task", task))).await.map(|_| ())
    }

    /// Creates a collector that reports changes; its filters select the objects.
    pub async fn collector(&self) -> Result<Reference, Error> {
        let made = self.read("CreatePropertyCollector", |open| method("CreatePropertyCollector", &open.collector)).await?;
        made.value(Reference::of)?.ok_or_else(nameless)
    }

    /// Destroys a collector. The end of the session destroys it too.
    pub async fn end_collector(&self, collector: &Reference) -> Result<(), Error> {
        self.read("DestroyPropertyCollector", |_| method("DestroyPropertyCollector", collector)).await.map(drop)
    }

    /// Lets a collector report the VMs in a folder, and returns the filter. The collector reports the folder too: then the listing is complete.
    pub async fn tell_of_folder(&self, collector: &Reference, folder: &Reference, paths: &[String]) -> Result<Reference, Error> {
        let through = Through { kind: "Folder", path: "childEntity", deep: false };
        let name = ["name".to_owned()];
        let spec = |_: &Open| spec("spec", &[("VirtualMachine", paths), ("Folder", name.as_slice())], folder, Some(through), false);
        self.filter(collector, spec).await
    }

    /// Lets a collector report the tasks that run or ended in the last minutes.
    pub async fn tell_of_tasks(&self, collector: &Reference) -> Result<Reference, Error> {
        let through = Through { kind: "TaskManager", path: "recentTask", deep: false };
        let paths = TASK.map(str::to_owned);
        self.filter(collector, |open| spec("spec", &[("Task", paths.as_slice())], &open.tasks, Some(through), true)).await
    }

    async fn filter(&self, collector: &Reference, spec: impl Fn(&Open) -> Element) -> Result<Reference, Error> {
        let request = |open: &Open| method("CreateFilter", collector).with(spec(open)).with(element("partialUpdates").text(false));
        self.read("CreateFilter", request).await?.value(Reference::of)?.ok_or_else(nameless)
    }

    /// Waits for changes since that version and applies them; `None`: nothing changed within `longest`. The first version is empty.
    pub async fn wait_for_updates(&self, collector: &Reference, version: &str, longest: Duration) -> Result<Option<Version>, Error> {
        let options = element("options").with(element("maxWaitSeconds").text(longest.as_secs()));
        let request = |_: &Open| method("WaitForUpdatesEx", collector).with(element("version").text(version)).with(options.clone());
        self.read("WaitForUpdatesEx", request).await?.value(|set| {
            self.mirror().apply(set);
            let is_whole = text_at(set, &["truncated"]) != Some("true");
            Some(Version { version: text_at(set, &["version"])?.to_owned(), is_whole })
        })
    }

    async fn begin(&self, name: &'static str, this: &Reference, arguments: &[Element]) -> Result<String, Error> {
        let answer = self.change(name, |_| method(name, this).with_all(arguments.iter().cloned())).await?;
        let task = answer.value(Reference::of)?.map(|task| task.id);
        // The task was begun all the same.
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
        for object in children(result, "objects").map(Properties::of) {
            denied = denied.or_else(|| object.denied());
            found.extend(read(object));
        }
        Some((denied, text_at(result, &["token"]).map(str::to_owned)))
    })?;
    Ok(page.unwrap_or_default())
}

fn nameless() -> Error {
    unreadable(&"it names nothing that was made")
}
