//! The cases: the behaviour of every driver, as far as the endpoint alone can show it.

use futures::FutureExt;
use futures::future::{LocalBoxFuture, join_all};

use super::run::Twin;
use super::trial::{Ended, Trial, failed, first_seed, steady};
use crate::hypervisor::{DriverError, DriverStep, Row};
use crate::vm::{Journal, Observed, SeedKind, Seeded, StopMode, Thing};

/// The function of a case; its text is for the report.
pub(super) type Body = for<'a> fn(&'a Trial<'a>) -> LocalBoxFuture<'a, Result<String, Ended>>;

/// One behaviour of a driver.
pub struct Case {
    /// The behaviour, in plain language.
    pub name: &'static str,
    /// The case's rows in docs/hypervisors/proof.md.
    pub rows: &'static str,
    /// Whether the other cases are pointless if this one fails.
    pub(super) is_first: bool,
    pub(super) run: Body,
}

type Ending = Result<String, Ended>;

/// All cases, in their order.
pub const CASES: [Case; 13] = [
    first("login, identity and rights", "20", |trial| login(trial).boxed_local()),
    first("what the machine asks for is there", "16", |trial| asked_for(trial).boxed_local()),
    case("a VM is made and removed, and nothing is left", "1", |trial| made_and_removed(trial).boxed_local()),
    case("making it again changes nothing, and two listings are equal", "2, 30", |trial| made_again(trial).boxed_local()),
    case("given up after each step, it is made and removed by other connections", "4, 5", |trial| given_up(trial).boxed_local()),
    case("removed after any step of making, nothing is left", "6", |trial| removed_while_made(trial).boxed_local()),
    case("a journal that is lost is no lost VM", "10", |trial| journal_lost(trial).boxed_local()),
    case("four make one VM, and four remove it", "11", |trial| four(trial).boxed_local()),
    case("a VM with the mark of another cluster is left alone", "14", |trial| other_cluster(trial).boxed_local()),
    case("equal names, and names of 253 characters, do not mix", "15", |trial| twins(trial).boxed_local()),
    case("an image that does not exist is named", "16", |trial| no_image(trial).boxed_local()),
    case("the data of the first start is there, and goes", "27", |trial| data(trial).boxed_local()),
    case("a guest that does not shut down is switched off", "31", |trial| switched_off(trial).boxed_local()),
];

const fn case(name: &'static str, rows: &'static str, run: Body) -> Case {
    Case { name, rows, is_first: false, run }
}

const fn first(name: &'static str, rows: &'static str, run: Body) -> Case {
    Case { is_first: true, ..case(name, rows, run) }
}

async fn login(trial: &Trial<'_>) -> Ending {
    let (driver, other) = (trial.connect()?, trial.connect()?);
    let endpoint = trial.ask(|| driver.describe()).await?;
    let again = trial.ask(|| other.describe()).await?;
    trial.describes(endpoint.clone());
    if endpoint.id.is_empty() || endpoint.id != again.id {
        return failed(format!("two connections find two identities, {:?} and {:?}", endpoint.id, again.id));
    }
    if !endpoint.lacks.is_empty() {
        return failed(format!("the credentials lack permissions: {}. Grant them to their user", endpoint.lacks.join("; ")));
    }
    Ok(format!("{}, {}", endpoint.version, endpoint.id))
}

async fn asked_for(trial: &Trial<'_>) -> Ending {
    let driver = trial.connect()?;
    let seed = first_seed(&*driver);
    trial.ask(|| driver.check(trial.spec(), seed)).await?;
    Ok(format!("image {}", trial.spec().image))
}

async fn made_and_removed(trial: &Trial<'_>) -> Ending {
    let driver = trial.connect()?;
    let machine = trial.machine(&*driver);
    trial.is_absent(&machine, &*driver).await?;
    trial.make(&machine, &*driver).await?;
    let vm = trial.is_on(&machine, &*driver).await?;
    if vm.seeded != Seeded::Yes {
        return failed("the VM runs without the data of its first start");
    }
    if let Some(trouble) = vm.trouble {
        return failed(trouble);
    }
    trial.is_listed(&machine, &*driver, 1).await?;
    let rows = trial.list(&*driver).await?.rows;
    let (wanted, row) = (trial.spec(), rows.iter().find(|row| row.key == machine.key));
    let listed = row.map(|row| (row.cpus, row.memory_mib));
    if listed != Some((wanted.cpus, wanted.memory_mib)) {
        return failed(format!("it is listed with {listed:?} processors and MiB of memory, not {:?}", (wanted.cpus, wanted.memory_mib)));
    }
    trial.remove(&machine, &*driver).await?;
    let other = trial.connect()?;
    trial.is_absent(&machine, &*other).await?;
    trial.is_listed(&machine, &*other, 0).await?;
    match trial.ask(|| machine.retire(&*other, StopMode::Hard)).await? {
        DriverStep::Done => Ok(String::new()),
        step => failed(format!("removing what is gone did something: {step:?}")),
    }
}

async fn made_again(trial: &Trial<'_>) -> Ending {
    let (driver, other) = (trial.connect()?, trial.connect()?);
    let machine = trial.machine(&*driver);
    trial.make(&machine, &*driver).await?;
    let before = steady(&trial.is_on(&machine, &*driver).await?);
    for driver in [&driver, &other] {
        let step = trial.ask(|| machine.advance(&**driver)).await?;
        if step != DriverStep::Done {
            return failed(format!("making what is made did something: {step:?}"));
        }
    }
    // The observation may be old: the driver checks again before it acts.
    let (none, absent) = (Journal::new(), Observed::Absent);
    trial.ask(|| driver.advance(&machine.key, &machine.spec, &machine.seed, &none, &absent)).await?;
    let after = steady(&trial.is_on(&machine, &*driver).await?);
    if before != after {
        return failed(format!("the VM has changed: {before:?} has become {after:?}"));
    }
    trial.is_listed(&machine, &*driver, 1).await?;
    let listings = [trial.list(&*driver).await?, trial.list(&*driver).await?, trial.list(&*other).await?];
    let of_run = |row: &Row| trial.run().has_made(&row.key).then(|| (row.key.clone(), steady(&row.present), row.cpus, row.memory_mib));
    let [first, second, third] = listings.map(|listing| listing.rows.iter().filter_map(of_run).collect::<Vec<_>>());
    if first != second || first != third {
        return failed(format!("listings differ: {first:?}, {second:?}, {third:?}"));
    }
    Ok(String::new())
}

async fn given_up(trial: &Trial<'_>) -> Ending {
    let mut driver = trial.connect()?;
    let machine = trial.machine(&*driver);
    let (mut made, mut removed) = (0, 0);
    while !trial.steps(1, || machine.advance(&*driver)).await? {
        (driver, made) = (trial.connect()?, made + 1);
    }
    trial.is_on(&machine, &*driver).await?;
    trial.is_listed(&machine, &*driver, 1).await?;
    while !trial.steps(1, || machine.retire(&*driver, StopMode::Hard)).await? {
        (driver, removed) = (trial.connect()?, removed + 1);
    }
    trial.is_absent(&machine, &*driver).await?;
    trial.is_listed(&machine, &*driver, 0).await?;
    Ok(format!("made in {made} steps, removed in {removed}"))
}

async fn removed_while_made(trial: &Trial<'_>) -> Ending {
    for steps in 1.. {
        let (driver, other) = (trial.connect()?, trial.connect()?);
        let machine = trial.machine(&*driver);
        let is_made = trial.steps(steps, || machine.advance(&*driver)).await?;
        trial.remove(&machine, &*other).await?;
        trial.is_listed(&machine, &*other, 0).await?;
        if is_made {
            return Ok(format!("after each of {} steps", steps - 1));
        }
    }
    Ok(String::new())
}

async fn journal_lost(trial: &Trial<'_>) -> Ending {
    let (driver, other) = (trial.connect()?, trial.connect()?);
    let machine = trial.machine(&*driver);
    trial.make(&machine, &*driver).await?;
    machine.lose_journal();
    trial.is_on(&machine, &*other).await?;
    let step = trial.ask(|| machine.advance(&*other)).await?;
    if step != DriverStep::Done {
        return failed(format!("making what is made did something: {step:?}"));
    }
    trial.remove(&machine, &*other).await?;
    trial.is_listed(&machine, &*other, 0).await?;
    Ok(String::new())
}

async fn four(trial: &Trial<'_>) -> Ending {
    let workers = [trial.connect()?, trial.connect()?, trial.connect()?, trial.connect()?];
    let [driver, ..] = &workers;
    let machine = trial.machine(&**driver);
    // All workers end, even if others disturb them.
    join_all(workers.iter().map(|worker| trial.make(&machine, &**worker))).await.into_iter().collect::<Result<(), Ended>>()?;
    trial.is_on(&machine, &**driver).await?;
    trial.is_listed(&machine, &**driver, 1).await?;
    join_all(workers.iter().map(|worker| trial.remove(&machine, &**worker))).await.into_iter().collect::<Result<(), Ended>>()?;
    trial.is_listed(&machine, &**driver, 0).await?;
    Ok(String::new())
}

async fn other_cluster(trial: &Trial<'_>) -> Ending {
    let driver = trial.connect()?;
    let ours = trial.machine(&*driver);
    trial.make(&ours, &*driver).await?;
    let theirs = trial.run().elsewhere(&ours.key);
    let journal = Journal::new();
    let seen = trial.ask(|| driver.observe(&theirs, &journal)).await?;
    if !matches!(seen, Observed::Foreign { is_marked: true, .. }) {
        return failed(format!("asked for in another cluster, it is not told as foreign: {seen:?}"));
    }
    match trial.answer(|| driver.retire(&theirs, StopMode::Hard, &journal, &seen)).await? {
        Err(DriverError::Conflict(why)) => {
            trial.is_on(&ours, &*driver).await?;
            Ok(why)
        }
        other => failed(format!("removing it for another cluster is not refused: {other:?}")),
    }
}

async fn twins(trial: &Trial<'_>) -> Ending {
    let driver = trial.connect()?;
    let [one, other] = [Twin::One, Twin::Other].map(|twin| trial.twin(&*driver, twin));
    for machine in [&one, &other] {
        trial.make(machine, &*driver).await?;
    }
    for machine in [&one, &other] {
        trial.is_listed(machine, &*driver, 1).await?;
    }
    trial.remove(&one, &*driver).await?;
    trial.is_on(&other, &*driver).await?;
    trial.is_listed(&one, &*driver, 0).await?;
    Ok(String::new())
}

async fn no_image(trial: &Trial<'_>) -> Ending {
    let driver = trial.connect()?;
    let name = format!("no-image-{}", trial.run());
    let machine = trial.of_image(&*driver, name.clone());
    let (journal, absent) = (Journal::new(), Observed::Absent);
    let checked = trial.answer(|| driver.check(&machine.spec, machine.seed.kind())).await?;
    let advanced = trial.answer(|| driver.advance(&machine.key, &machine.spec, &machine.seed, &journal, &absent)).await?;
    for answer in [checked, advanced.map(drop)] {
        if !matches!(&answer, Err(DriverError::Missing { thing: Thing::Image, text }) if text.contains(&name)) {
            return failed(format!("an image {name} is not told as missing: {answer:?}"));
        }
    }
    trial.is_absent(&machine, &*driver).await?;
    Ok(String::new())
}

/// Gives a machine each kind of data that the driver supports. Only a guest could prove that it gets the machine's very bytes.
async fn data(trial: &Trial<'_>) -> Ending {
    let driver = trial.connect()?;
    let mut words = Vec::new();
    for kind in driver.caps().seeds {
        let name = match kind {
            SeedKind::Drive => "a CD",
            SeedKind::GuestInfo => "guestinfo",
        };
        match trial.answer(|| driver.check(trial.spec(), *kind)).await? {
            Ok(()) => words.push(format!("{name}: {}", data_of(trial, *kind).await?)),
            // Only the first kind must be possible.
            Err(error @ (DriverError::Denied(_) | DriverError::Invalid(_))) if *kind != first_seed(&*driver) => {
                words.push(format!("{name} does not apply: {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(words.join("; "))
}

async fn data_of(trial: &Trial<'_>, kind: SeedKind) -> Ending {
    let driver = trial.connect()?;
    let machine = trial.seeded(kind);
    trial.make(&machine, &*driver).await?;
    if trial.is_on(&machine, &*driver).await?.seeded != Seeded::Yes {
        return failed("the VM runs without the data of its first start");
    }
    loop {
        match trial.answer(|| machine.detach(&*driver)).await? {
            Ok(DriverStep::Done) => break,
            Ok(DriverStep::Wait { after }) => trial.rest(after).await,
            Ok(_) => {}
            Err(DriverError::Invalid(why)) => return Err(Ended::DoesNotApply(why)),
            Err(error) => return Err(error.into()),
        }
    }
    let seeded = trial.is_on(&machine, &*driver).await?.seeded;
    if seeded == Seeded::Yes {
        return failed("the data of the first start is not taken away");
    }
    let step = trial.ask(|| machine.advance(&*driver)).await?;
    let after = trial.is_on(&machine, &*driver).await?.seeded;
    if step != DriverStep::Done || after != seeded {
        return failed(format!("what was taken away came back: {step:?}, {after:?}"));
    }
    trial.remove(&machine, &*driver).await?;
    Ok(if seeded == Seeded::No { "gone".into() } else { "gone at the next start".into() })
}

async fn switched_off(trial: &Trial<'_>) -> Ending {
    let driver = trial.connect()?;
    let machine = trial.machine(&*driver);
    trial.make(&machine, &*driver).await?;
    trial.ask(|| machine.retire(&*driver, StopMode::Graceful)).await?;
    trial.remove(&machine, &*driver).await?;
    trial.is_listed(&machine, &*driver, 0).await?;
    Ok(String::new())
}
