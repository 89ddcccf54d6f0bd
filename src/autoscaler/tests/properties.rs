//! Properties of any calls in any order: bounds hold, and a machine is removed only if it was named.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::world::{machine, node};
use crate::api::pool::{Autoscaling, REMOVE_ANNOTATION, WindowsNodePool};
use crate::autoscaler::change::{Change, decrease, delete, increase};
use crate::autoscaler::group::Group;
use crate::autoscaler::wire::ExternalGrpcNode;

#[derive(Clone, Debug)]
enum Call {
    Look,
    Increase(i32),
    Decrease(i32),
    Delete(Vec<usize>),
    /// The pool's controller creates and removes machines.
    Settle,
    /// Another client sets the number.
    Scale(i32),
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => Just(Call::Look),
        3 => (-1_i32..5).prop_map(Call::Increase),
        2 => (-5_i32..2).prop_map(Call::Decrease),
        3 => prop::collection::vec(0_usize..8, 0..4).prop_map(Call::Delete),
        3 => Just(Call::Settle),
        1 => (0_i32..7).prop_map(Call::Scale),
    ]
}

fn group(replicas: i32) -> Group {
    let mut pool = WindowsNodePool::new("windows", Default::default());
    pool.metadata.namespace = Some("lab".into());
    pool.spec.replicas = replicas;
    pool.spec.cluster = Some(Default::default());
    pool.spec.autoscaling = Some(Autoscaling { min_replicas: 1, max_replicas: 6 });
    Group { pool, machines: Vec::new() }
}

fn write(group: &mut Group, change: &Change) {
    group.pool.spec.replicas = change.replicas;
    let listed: Vec<&str> = change.named.iter().map(String::as_str).collect();
    group.pool.metadata.annotations = Some([(REMOVE_ANNOTATION.to_owned(), listed.join(","))].into());
}

fn name(m: &crate::api::machine::WindowsMachine) -> String {
    m.metadata.name.clone().unwrap()
}

/// Acts like the pool's controller: removes the named machines, then creates missing machines or removes surplus ones.
fn settle(group: &mut Group, made: &mut usize) {
    let named = group.pool.named_for_removal();
    group.machines.retain(|m| !named.contains(&name(m)));
    let wanted = usize::try_from(group.pool.spec.replicas).unwrap();
    group.machines.truncate(wanted);
    while group.machines.len() < wanted {
        group.machines.push(Arc::new(machine(&format!("m{made}"), "NodeJoined", "True", "Joined")));
        *made += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn bounds_hold_and_only_the_named_go(calls in prop::collection::vec(call(), 0..40)) {
        let (mut group, mut told, mut made) = (group(2), None, 0);
        for call in calls {
            let before = group.clone();
            let decided = match &call {
                Call::Look => { told = Some(group.pool.spec.replicas); continue }
                Call::Scale(replicas) => { group.pool.spec.replicas = *replicas; continue }
                Call::Settle => { settle(&mut group, &mut made); continue }
                Call::Increase(delta) => increase(&group, told, *delta),
                Call::Decrease(delta) => decrease(&group, told, *delta),
                Call::Delete(which) => {
                    let nodes: Vec<ExternalGrpcNode> = which.iter().filter_map(|n| group.machines.get(*n)).map(|m| node(&name(m))).collect();
                    delete(&group, &nodes)
                }
            };
            let Ok(Some(change)) = decided else { continue };
            write(&mut group, &change);
            told = change.base.or(told);
            let now = before.pool.spec.replicas;
            let staying: BTreeSet<String> = before.staying().map(name).collect();
            let newly: BTreeSet<String> = change.named.intersection(&staying).cloned().collect();
            match &call {
                Call::Increase(delta) => {
                    prop_assert!(change.replicas > now && change.replicas <= 6 && change.replicas - now <= *delta);
                    prop_assert!(newly.is_empty());
                }
                Call::Decrease(_) => {
                    prop_assert!(change.replicas < now && change.replicas >= 1);
                    prop_assert!(usize::try_from(change.replicas).unwrap() >= staying.len(), "a machine that is there would go");
                    prop_assert!(newly.is_empty());
                }
                Call::Delete(which) => {
                    let asked: BTreeSet<String> = which.iter().filter_map(|n| before.machines.get(*n)).map(|m| name(m)).collect();
                    prop_assert!(newly.is_subset(&asked));
                    prop_assert_eq!(now - change.replicas, i32::try_from(newly.len()).unwrap(), "as many less as go");
                    prop_assert!(change.replicas >= 1);
                }
                _ => {}
            }
            // A call that is repeated at once changes nothing.
            let again = match &call {
                Call::Increase(delta) if told.is_some() => increase(&group, told, *delta),
                Call::Decrease(delta) if told.is_some() => decrease(&group, told, *delta),
                Call::Delete(which) => {
                    let nodes: Vec<ExternalGrpcNode> = which.iter().filter_map(|n| before.machines.get(*n)).map(|m| node(&name(m))).collect();
                    delete(&group, &nodes)
                }
                _ => Ok(None),
            };
            prop_assert_eq!(again, Ok(None));
        }
    }
}
