//! A cache of the VMs in our folders and of tasks, which the vCenter's updates fill. A lookup costs no request. The cache is behind by the
//! delay of an update, so it decides nothing irreversible: a VM is read again before it is destroyed.

use std::collections::HashMap;

use parking_lot::Mutex;
use roxmltree::Node;
use tokio::sync::watch;
use tokio::time::Instant;

use super::caps::CAPS;
use super::fault::Fault;
use super::found::Found;
use super::soap::{Reference, child, children, text_at};
use super::task::{Task, TaskState};
use crate::vm::MachineKey;

/// The most tasks and early VMs that are remembered; the state of a forgotten one is requested from the vCenter.
const MOST: usize = 4096;

#[derive(Default)]
pub struct Mirror {
    told: Mutex<Told>,
    /// Notifies about every update.
    news: watch::Sender<()>,
    /// Notifies when a VM was created, deleted or changed.
    changes: watch::Sender<()>,
}

#[derive(Default)]
struct Told {
    /// The cache is complete, and updates arrive.
    is_live: bool,
    /// Some property may not be read: the cache is not used.
    is_partial: bool,
    /// The number of requests for updates that were begun.
    requests: u64,
    /// The folders by the filter that reports them.
    folders: HashMap<String, Reference>,
    vms: HashMap<Reference, Vm>,
    tasks: HashMap<String, Task>,
    /// VMs that we have read, changed or destroyed before an update showed them. A vCenter never uses a reference for another VM.
    early: HashMap<Reference, (Early, Instant)>,
}

/// Our knowledge of a VM before an update shows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Early {
    Read,
    Changed,
    Destroyed,
}

impl Early {
    /// Whether an update should still show the VM; a VM without an update for a whole tick is in another folder or was deleted.
    fn is_missing((early, since): &(Self, Instant)) -> bool {
        *early != Self::Destroyed && since.elapsed() < CAPS.tick
    }
}

struct Vm {
    folder: Reference,
    found: Found,
    /// We changed the VM during that request, and no update shows the change. The answer to the request may be older than the change.
    doubted: Option<u64>,
}

impl Mirror {
    /// Starts a new cache for these filters and their folders.
    pub fn begin(&self, folders: HashMap<String, Reference>) {
        *self.told.lock() = Told { folders, ..Told::default() };
    }

    /// Counts a request for updates. The answer has the changes before the request and after it.
    pub fn ask(&self) {
        self.told.lock().requests += 1;
    }

    /// Marks the last request as answered: all changes before the request are in the cache, even if there were none.
    pub fn settle(&self) {
        self.told.lock().settle();
    }

    /// Marks the cache as complete; `false`: some VMs may not be read.
    pub fn is_whole(&self) -> bool {
        let mut told = self.told.lock();
        told.settle();
        let (was_live, is_live) = (told.is_live, !told.is_partial);
        told.is_live = is_live;
        drop(told);
        if was_live != is_live {
            self.news.send_replace(());
        }
        is_live
    }

    /// Empties the cache: no more updates arrive. A listing finds out why.
    pub fn end(&self) {
        *self.told.lock() = Told::default();
        self.changes.send_replace(());
        self.news.send_replace(());
    }

    /// Applies a set of updates.
    pub fn apply(&self, set: Node) {
        let mut has_changed = false;
        let mut told = self.told.lock();
        for of_filter in children(set, "filterSet") {
            let folder = child(of_filter, "filter").and_then(Reference::of).and_then(|filter| told.folders.get(&filter.id).cloned());
            for update in children(of_filter, "objectSet") {
                has_changed |= told.update(folder.as_ref(), update);
            }
        }
        drop(told);
        if has_changed {
            self.changes.send_replace(());
        }
        self.news.send_replace(());
    }

    pub fn is_live(&self) -> bool {
        self.told.lock().is_live
    }

    /// Finds a machine's own VM.
    pub fn find(&self, key: &MachineKey) -> Option<Found> {
        let told = self.told.lock();
        let mut ours = told.vms.values().filter(|vm| vm.found.has_uuid(key.vm) && vm.found.is_ours(key));
        ours.next().filter(|vm| told.is_live && vm.doubted.is_none()).map(|vm| vm.found.clone())
    }

    pub fn vm(&self, vm: &Reference) -> Option<Found> {
        let told = self.told.lock();
        told.vms.get(vm).filter(|vm| told.is_live && vm.doubted.is_none()).map(|vm| vm.found.clone())
    }

    /// Finds the VM of that name in a folder; `None`: the cache does not cover the folder.
    pub fn named(&self, folder: &Reference, name: &str) -> Option<Option<Reference>> {
        let told = self.told.lock();
        let mut named = told.vms.values().filter(|vm| vm.folder == *folder && vm.found.name == name);
        told.tells_of(folder).then(|| named.next().map(|vm| vm.found.vm.clone()))
    }

    /// The VMs in a folder; `None`: the cache does not cover the folder, or lacks the state of one of its VMs.
    pub fn all(&self, folder: &Reference) -> Option<Vec<Found>> {
        let told = self.told.lock();
        let vms = || told.vms.values().filter(|vm| vm.folder == *folder);
        let is_behind = vms().any(|vm| vm.doubted.is_some()) || told.early.values().any(Early::is_missing);
        (told.tells_of(folder) && !is_behind).then(|| vms().map(|vm| vm.found.clone()).collect())
    }

    /// The state of a task, if an update has reported it.
    pub fn task(&self, id: &str) -> Option<TaskState> {
        let told = self.told.lock();
        told.tasks.get(id).filter(|_| told.is_live).and_then(Task::state)
    }

    /// Notes a task that was requested. A later update may have an older state.
    pub fn asked(&self, id: &str, task: Task) {
        self.told.lock().note_task(id.to_owned(), |known| *known = task);
    }

    /// Notes that a VM is in our folder: until an update shows the VM, the folder is read.
    pub fn read(&self, vm: &Reference) {
        self.told.lock().note_early(vm, Early::Read);
    }

    /// Notes that a VM has changed without an update: the VM is read until a request that begins later is answered.
    pub fn note_error(&self, vm: &Reference) {
        let mut told = self.told.lock();
        let during = told.requests;
        match told.vms.get_mut(vm) {
            Some(vm) => vm.doubted = Some(during),
            None => told.note_early(vm, Early::Changed),
        }
    }

    /// Notes that a VM was destroyed, whatever later updates report.
    pub fn forget(&self, vm: &Reference) {
        let mut told = self.told.lock();
        told.vms.remove(vm);
        told.note_early(vm, Early::Destroyed);
    }

    /// Notifies about every update, and about the end of updates.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Notifies when a VM was created, deleted or changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

impl Told {
    fn tells_of(&self, folder: &Reference) -> bool {
        self.is_live && self.folders.values().any(|known| known == folder)
    }

    fn settle(&mut self) {
        for vm in self.vms.values_mut() {
            vm.doubted = vm.doubted.filter(|during| *during >= self.requests);
        }
    }

    fn note_task(&mut self, id: String, note: impl FnOnce(&mut Task)) {
        if self.tasks.len() >= MOST {
            self.tasks.clear();
        }
        note(self.tasks.entry(id).or_default());
    }

    fn note_early(&mut self, vm: &Reference, early: Early) {
        if !self.is_live || self.vms.contains_key(vm) {
            return;
        }
        if self.early.len() >= MOST {
            self.early.clear();
        }
        let (known, _) = self.early.entry(vm.clone()).or_insert((early, Instant::now()));
        if early != Early::Read {
            *known = early;
        }
    }

    /// Applies one update; returns whether it is about a VM.
    fn update(&mut self, folder: Option<&Reference>, update: Node) -> bool {
        let Some(object) = child(update, "obj").and_then(Reference::of) else { return false };
        let changes = || children(update, "changeSet").filter_map(|change| Some((text_at(change, &["name"])?, child(change, "val"))));
        let mut missing = children(update, "missingSet").filter_map(|set| child(set, "fault")).map(Fault::of_localized);
        self.is_partial |= missing.any(|fault| fault.is(&["NoPermission"]));
        let kind = text_at(update, &["kind"]).unwrap_or_default();
        match (object.kind.as_str(), folder, kind) {
            ("Task", _, "leave") => {
                self.tasks.remove(&object.id);
                false
            }
            ("Task", _, _) => {
                self.note_task(object.id, |task| changes().for_each(|(path, value)| task.set(path, value)));
                false
            }
            ("VirtualMachine", Some(_), "leave") => {
                self.early.remove(&object);
                self.vms.remove(&object).is_some()
            }
            ("VirtualMachine", Some(folder), "enter") => {
                let early = self.early.get(&object).map(|(early, _)| *early);
                if early == Some(Early::Destroyed) {
                    return false;
                }
                self.early.remove(&object);
                let mut found = Found::told(object.clone());
                changes().for_each(|(path, value)| found.set(path, value));
                let doubted = (early == Some(Early::Changed)).then_some(self.requests);
                self.vms.insert(object, Vm { folder: folder.clone(), found, doubted });
                true
            }
            // A VM that we destroyed is not known any more.
            ("VirtualMachine", Some(_), _) => self.vms.get_mut(&object).is_some_and(|vm| {
                changes().for_each(|(path, value)| vm.found.set(path, value));
                true
            }),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roxmltree::Document;

    fn told(mirror: &Mirror, updates: &str) {
        let text = format!(r#"<set><filterSet><filter type="PropertyFilter">f1</filter>{updates}</filterSet></set>"#);
        mirror.apply(Document::parse(&text).unwrap().root_element());
    }

    fn vm(kind: &str, changes: &str) -> String {
        format!(r#"<objectSet><kind>{kind}</kind><obj type="VirtualMachine">vm-1</obj>{changes}</objectSet>"#)
    }

    fn change(path: &str, value: &str) -> String {
        format!("<changeSet><name>{path}</name><op>assign</op>{value}</changeSet>")
    }

    #[test]
    fn what_is_told_is_known_from_the_whole_beginning_to_the_end() {
        let (mirror, folder, it) = (Mirror::default(), Reference::new("Folder", "group-v1"), Reference::new("VirtualMachine", "vm-1"));
        mirror.begin([("f1".to_owned(), folder.clone())].into());
        told(&mirror, &vm("enter", &(change("name", "<val>a</val>") + &change("runtime.powerState", "<val>poweredOn</val>"))));
        assert_eq!((mirror.vm(&it), mirror.all(&folder)), (None, None), "there may be more");
        assert!(mirror.is_whole());
        assert!(!mirror.vm(&it).unwrap().is_off() && mirror.vm(&it).unwrap().is_told);
        assert_eq!(mirror.named(&folder, "a"), Some(Some(it.clone())));
        assert_eq!((mirror.named(&folder, "b"), mirror.named(&Reference::new("Folder", "other"), "b")), (Some(None), None));

        told(&mirror, &vm("modify", &change("runtime.powerState", "<val>poweredOff</val>")));
        assert!(mirror.vm(&it).unwrap().is_off());

        told(&mirror, &vm("leave", ""));
        assert_eq!(mirror.all(&folder), Some(vec![]));
        told(&mirror, &vm("modify", &change("runtime.powerState", "<val>poweredOff</val>")));
        assert_eq!(mirror.all(&folder), Some(vec![]), "a word that comes late makes no VM");
        mirror.end();
        assert_eq!(mirror.all(&folder), None);
    }

    /// The VM was off and is on: a late update about something else, e.g. its seed, does not mean that it is off.
    #[test]
    fn a_vm_that_is_doubted_is_read_until_a_later_request_is_answered() {
        let (mirror, it) = (Mirror::default(), Reference::new("VirtualMachine", "vm-1"));
        mirror.begin([("f1".to_owned(), Reference::new("Folder", "group-v1"))].into());
        told(&mirror, &vm("enter", &change("runtime.powerState", "<val>poweredOff</val>")));
        assert!(mirror.is_whole() && mirror.vm(&it).unwrap().is_off());
        mirror.ask();
        mirror.note_error(&it);
        told(&mirror, &vm("modify", &change("name", "<val>b</val>")));
        assert!(mirror.is_whole() && mirror.vm(&it).is_none(), "that may be from before the change");
        mirror.ask();
        told(&mirror, &vm("modify", &change("runtime.powerState", "<val>poweredOn</val>")));
        mirror.settle();
        assert!(!mirror.vm(&it).unwrap().is_off());
    }

    #[tokio::test(start_paused = true)]
    async fn what_we_did_ourselves_is_not_taken_back_by_what_is_told_late() {
        let (folder, it) = (Reference::new("Folder", "group-v1"), Reference::new("VirtualMachine", "vm-1"));
        let live = || {
            let mirror = Mirror::default();
            mirror.begin([("f1".to_owned(), folder.clone())].into());
            assert!(mirror.is_whole() && mirror.all(&folder) == Some(vec![]));
            mirror
        };
        let enter = vm("enter", &change("name", "<val>a</val>"));

        let destroyed = live();
        destroyed.forget(&it);
        assert_eq!(destroyed.all(&folder), Some(vec![]));
        told(&destroyed, &enter);
        assert_eq!((destroyed.vm(&it), destroyed.all(&folder)), (None, Some(vec![])), "it was destroyed before that was told");

        let read = live();
        read.read(&it);
        assert_eq!(read.all(&folder), None, "it is there, and not told of");
        tokio::time::advance(CAPS.tick).await;
        assert_eq!(read.all(&folder), Some(vec![]), "it is not in this folder any more");
        told(&read, &enter);
        assert!(read.vm(&it).is_some() && read.all(&folder).is_some());

        let changed = live();
        changed.note_error(&it);
        changed.read(&it);
        told(&changed, &enter);
        assert_eq!((changed.vm(&it), changed.all(&folder)), (None, None), "that may be from before the change");
        changed.ask();
        told(&changed, &vm("modify", &change("runtime.powerState", "<val>poweredOn</val>")));
        changed.settle();
        assert!(changed.vm(&it).is_some());
    }

    #[test]
    fn tasks_are_told() {
        let mirror = Mirror::default();
        mirror.begin(HashMap::new());
        let task = |changes: &str| told(&mirror, &format!(r#"<objectSet><kind>modify</kind><obj type="Task">t</obj>{changes}</objectSet>"#));
        task(&change("info.state", "<val>running</val>"));
        assert!(mirror.is_whole() && mirror.task("t") == Some(TaskState::Running) && mirror.task("u").is_none());
        let of = change("info.result", r#"<val type="VirtualMachine">vm-1</val>"#);
        task(&(change("info.state", "<val>success</val>") + &of));
        task(&change("info.result", ""));
        let succeeded = Some(TaskState::Succeeded(Some(Reference::new("VirtualMachine", "vm-1"))));
        assert_eq!(mirror.task("t"), succeeded);
        task(&change("info.state", "<val>running</val>"));
        assert_eq!(mirror.task("t"), succeeded, "told late: it was asked for");
        let late = |changes: &str| told(&mirror, &format!(r#"<objectSet><kind>modify</kind><obj type="Task">late</obj>{changes}</objectSet>"#));
        late(&change("info.state", "<val>success</val>"));
        late(&of);
        assert_eq!(mirror.task("late"), succeeded, "what came of it may be told after its end");
    }

    #[test]
    fn nothing_is_believed_when_something_may_not_be_read() {
        let mirror = Mirror::default();
        mirror.begin(HashMap::new());
        let denied = r#"<missingSet xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><path>config.instanceUuid</path><fault><fault xsi:type="NoPermission"/></fault></missingSet>"#;
        told(&mirror, &vm("enter", denied));
        assert!(!mirror.is_whole() && !mirror.is_live());
    }
}
