//! The fleet's state: a function of its log, with numbers that never come back.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use tollgate::NodeId;
use tollgate::coordinator::{
    Answer, Command, Document, Edit, FleetSecret, LimitText, Refused, Revision, RingChange,
    StartNumber, State,
};

use crate::support::cases;

fn node(number: u32) -> NodeId {
    NodeId::new(number)
}

fn start(number: u64) -> StartNumber {
    StartNumber::new(number)
}

fn found(byte: u8) -> Command {
    Command::Found { secret: FleetSecret::new([byte; 32]), fleet: 9, voters_max: 3 }
}

fn founded() -> State {
    let mut state = State::default();
    state.apply(found(7)).expect("the first");
    state
}

/// A process at a node's usual address.
fn joining(node: Option<NodeId>, weight: u32) -> Command {
    Command::Join { node, weight, address: String::from("10.0.0.1:7800"), is_candidate: true }
}

/// Joins, and says as which node and start in which epoch.
fn join(state: &mut State, node: Option<NodeId>) -> (u32, u64, u64) {
    let joined = state.apply(joining(node, 1)).expect("joined");
    let Answer::Joined { node, start, ring, .. } = joined.answer else { panic!("no join") };
    assert!(ring.contains(node));
    (node.get(), start.get(), ring.epoch().get())
}

#[test]
fn nothing_is_known_before_the_fleet_is_founded_and_it_is_founded_once() {
    let mut state = State::default();
    let early = state.apply(joining(None, 1));
    assert_eq!(early.err(), Some(Refused::NotFounded));
    state = founded();
    let again = state.apply(found(8));
    assert_eq!(again.err(), Some(Refused::AlreadyFounded));
    assert_eq!(state.secret().map(FleetSecret::bytes), Some(&[7; 32]));
}

#[test]
fn the_secret_is_not_shown() {
    let command = found(173);
    let state = founded();
    assert!(!format!("{command:?} {state:?} {:?}", state.secret()).contains("173"));
    assert!(!format!("{state:?}").contains("7, 7"));
}

#[test]
fn a_restart_before_the_loss_gets_a_new_start_and_leaves_the_ring_as_it_is() {
    let mut state = founded();
    assert_eq!(join(&mut state, None), (1, 1, 1));
    assert_eq!(join(&mut state, None), (2, 2, 2));
    assert_eq!(join(&mut state, Some(node(1))), (1, 3, 2));
    // The loss of the first start comes too late.
    let late = state.apply(Command::Lose { node: node(1), start: start(1) });
    let (start, current) = (start(1), start(3));
    assert_eq!(late.err(), Some(Refused::OtherStart { node: node(1), start, current }));
    assert_eq!(state.ring().epoch().get(), 2);
}

#[test]
fn a_restart_may_be_at_another_address_without_a_change_of_the_ring() {
    let mut state = founded();
    join(&mut state, None);
    let is_candidate = false;
    let address = "b".repeat(256);
    let moved = Command::Join { node: Some(node(1)), weight: 1, address, is_candidate };
    assert!(state.apply(moved).expect("a member").ring.is_none());
    assert_eq!(state.members().next().expect("one").address, "b".repeat(256));
    let address = "c".repeat(257);
    let long = Command::Join { node: Some(node(1)), weight: 1, address, is_candidate };
    assert_eq!(state.apply(long).err(), Some(Refused::AddressTooLong { bytes: 257 }));
    assert_eq!(state.ring().epoch().get(), 1);
}

#[test]
fn one_three_or_five_replicas_vote_and_the_founder_says_how_many() {
    for voters_max in 0..8 {
        let mut state = State::default();
        let secret = FleetSecret::new([7; 32]);
        let founded = state.apply(Command::Found { secret, fleet: 9, voters_max });
        if [1, 3, 5].contains(&voters_max) {
            assert!(founded.is_ok());
            assert_eq!((state.fleet(), state.voters_max()), (Some(9), voters_max));
        } else {
            assert_eq!(founded.err(), Some(Refused::VotersMax { voters_max }));
            assert_eq!((state.fleet(), state.voters_max()), (None, 1));
        }
    }
}

#[test]
fn a_restart_keeps_the_weight_until_it_is_set() {
    let mut state = founded();
    join(&mut state, None);
    let again = state.apply(joining(Some(node(1)), 5)).expect("a member");
    assert!(again.ring.is_none());
    assert_eq!(state.ring().members()[0].weight, 1);
    let change = state.apply(Command::SetWeight { node: node(1), weight: 5 }).expect("a member");
    assert_eq!(change.ring.expect("another weight").ring.members()[0].weight, 5);
    let same = state.apply(Command::SetWeight { node: node(1), weight: 5 }).expect("a member");
    assert!(same.ring.is_none());
    assert_eq!(state.ring().epoch().get(), 2);
    // Somebody has to own the keys.
    let none = state.apply(Command::SetWeight { node: node(1), weight: 0 });
    assert!(matches!(none, Err(Refused::Ring(_))));
}

#[test]
fn a_member_without_weight_hands_over_what_it_owned_and_stays() {
    let mut state = founded();
    join(&mut state, None);
    join(&mut state, None);
    let drained = state.apply(Command::SetWeight { node: node(2), weight: 0 }).expect("a member");
    let change = drained.ring.expect("another weight");
    assert!(change.previous.contains(node(2)) && !change.ring.contains(node(2)));
    assert!(change.lost.is_empty());
    assert_eq!(state.members().len(), 2);
    assert_eq!(State::decode(&state.encode()), Ok(state.clone()));
    // Its death is nothing to wait for.
    let start = state.members().nth(1).expect("it is there").start;
    let lost = state.apply(Command::Lose { node: node(2), start }).expect("a member");
    assert!(lost.ring.expect("a member is gone").lost.is_empty());
    assert_eq!(State::decode(&state.encode()), Ok(state));
}

#[test]
fn whoever_leaves_hands_over_and_whoever_is_lost_does_not() {
    let mut state = founded();
    for _ in 0..3 {
        join(&mut state, None);
    }
    let left = state.apply(Command::Leave { node: node(1), start: start(1) }).expect("a member");
    let change = left.ring.expect("a change");
    assert_eq!((change.previous.epoch().get(), change.ring.epoch().get()), (3, 4));
    assert!(change.previous.contains(node(1)));
    assert!(!change.ring.contains(node(1)));
    assert!(change.lost.is_empty());
    let lost = state.apply(Command::Lose { node: node(2), start: start(2) }).expect("a member");
    assert_eq!(*lost.ring.expect("a change").lost, [node(2)]);
    // Back, it is a member anew.
    assert_eq!(join(&mut state, Some(node(2))), (2, 4, 6));
}

#[test]
fn numbers_of_another_fleet_are_refused_and_none_is_issued_twice() {
    let mut state = founded();
    let foreign = state.apply(joining(Some(node(1)), 1));
    assert_eq!(foreign.err(), Some(Refused::UnknownNode { node: node(1) }));
    join(&mut state, None);
    state.apply(Command::Leave { node: node(1), start: start(1) }).expect("a member");
    assert_eq!(join(&mut state, None), (2, 2, 3));
    let gone = state.apply(Command::Leave { node: node(1), start: start(1) });
    assert_eq!(gone.err(), Some(Refused::NotAMember { node: node(1) }));
}

#[test]
fn a_fleet_has_a_thousand_members_and_no_more() {
    // From bytes, because each join makes a ring.
    let mut bytes = founded().encode();
    let (index, starts, rest) = (8, 61, 73);
    let count = State::MEMBERS_MAX as u32;
    bytes[index..index + 8].copy_from_slice(&u64::from(count + 1).to_le_bytes());
    bytes[starts..starts + 8].copy_from_slice(&u64::from(count).to_le_bytes());
    bytes[starts + 8..starts + 12].copy_from_slice(&count.to_le_bytes());
    let members = (1..=count).flat_map(|number| {
        let (node, start) = (number.to_le_bytes(), u64::from(number).to_le_bytes());
        [&node[..], &start, &1_u32.to_le_bytes(), &0_u32.to_le_bytes(), &[0]].concat()
    });
    // Epoch 1, after a ring of no members and a loss of none.
    let changed = 1_u64.to_le_bytes().into_iter().chain([0; 8]);
    let members = count.to_le_bytes().into_iter().chain(members).chain(changed);
    bytes.splice(rest..rest + 12, members);
    let mut state = State::decode(&bytes).expect("a thousand members");
    let one_more = state.apply(joining(None, 1));
    assert_eq!(one_more.err(), Some(Refused::TooManyMembers));
    assert_eq!(join(&mut state, Some(node(1_000))), (1_000, 1_001, 1));
}

/// A command that may make sense in a small fleet.
fn command() -> impl Strategy<Value = Command> {
    let who = (1..6_u32, 1..12_u64).prop_map(|(number, begun)| (node(number), start(begun)));
    let edit = (proptest::option::weighted(0.3, 0..6_u64), "[a-z]{0,3}", 0..9_u64).prop_map(
        |(expected, author, unix_seconds)| Edit {
            expected: expected.map(Revision::new),
            comment: author.clone(),
            author,
            unix_seconds,
        },
    );
    let limit = ("[a-c]", "[12]/s").prop_map(|(name, text)| LimitText { name, text });
    prop_oneof![
        1 => (any::<[u8; 32]>(), any::<u64>(), 0..7_u32).prop_map(|(bytes, fleet, voters_max)| {
            Command::Found { secret: FleetSecret::new(bytes), fleet, voters_max }
        }),
        4 => (proptest::option::of(1..6_u32), 0..4_u32, "[a-c]{0,2}").prop_map(
            |(number, weight, address)| {
                let (node, is_candidate) = (number.map(node), weight % 2 == 0);
                Command::Join { node, weight, address, is_candidate }
            }
        ),
        2 => who.clone().prop_map(|(node, start)| Command::Leave { node, start }),
        2 => who.prop_map(|(node, start)| Command::Lose { node, start }),
        1 => (1..6_u32, 0..4_u32)
            .prop_map(|(number, weight)| Command::SetWeight { node: node(number), weight }),
        4 => (edit.clone(), vec(limit, 0..4))
            .prop_map(|(edit, limits)| Command::PutPolicy { edit, limits }),
        1 => (edit, 0..6_u64)
            .prop_map(|(edit, to)| Command::Rollback { edit, to: Revision::new(to) }),
    ]
}

/// A log that begins as most do.
fn log() -> impl Strategy<Value = Vec<Command>> {
    let found = found(1);
    let begun = vec(command(), 0..60)
        .prop_map(move |log| std::iter::once(found.clone()).chain(log).collect());
    prop_oneof![20 => begun, 1 => vec(command(), 0..5)]
}

/// What must never come twice, over a whole log.
#[derive(Default)]
struct Seen {
    starts: BTreeSet<u64>,
    new_nodes: BTreeSet<u32>,
    texts: BTreeMap<(String, u64), String>,
    /// Which name has each number that was given to a limit.
    numbers: BTreeMap<u32, String>,
}

impl Seen {
    fn step(&mut self, before: &State, command: &Command, after: &State, answer: &Answer) {
        let members = |state: &State| -> Vec<(u32, u32)> {
            state.members().map(|seat| (seat.node.get(), seat.weight)).collect()
        };
        let changed = members(before) != members(after);
        let epochs = (before.ring().epoch().get(), after.ring().epoch().get());
        assert_eq!(epochs.1, epochs.0 + u64::from(changed), "{command:?}");
        let ring = after.ring().members().iter().map(|member| (member.node.get(), member.weight));
        let owners = members(after).into_iter().filter(|&(_, weight)| weight > 0);
        assert!(ring.eq(owners));
        if let Answer::Joined { node, start, .. } = answer {
            assert!(self.starts.insert(start.get()), "start {start} came twice");
            let seat = after.members().find(|seat| seat.node == *node).expect("in");
            assert_eq!(seat.start, *start);
            let Command::Join { address, .. } = command else { panic!("{command:?}") };
            assert_eq!(seat.address, *address);
            if matches!(command, Command::Join { node: None, .. }) {
                assert!(self.new_nodes.insert(node.get()), "node {node} came twice");
            }
        }
        let revision = |state: &State| state.policy().map_or(0, |policy| policy.revision.get());
        let put = matches!(command, Command::PutPolicy { .. } | Command::Rollback { .. });
        assert_eq!(revision(after), revision(before) + u64::from(put));
        let before: BTreeMap<&str, _> = before
            .policy()
            .iter()
            .flat_map(|policy| policy.limits.iter())
            .map(|limit| (&*limit.name, &**limit))
            .collect();
        for limit in after.policy().iter().flat_map(|policy| policy.limits.iter()) {
            let key = (limit.name.clone(), limit.generation.get());
            let text = self.texts.entry(key).or_insert_with(|| limit.text.clone());
            assert_eq!(*text, limit.text, "one generation of two texts");
            let before = before.get(&*limit.name);
            let (generation, unchanged) = match before {
                Some(before) if before.text == limit.text => (before.generation, true),
                Some(_) | None => (Revision::new(revision(after)), false),
            };
            match before {
                Some(before) => assert_eq!(limit.number, before.number),
                None => {
                    let other = self.numbers.insert(limit.number, limit.name.clone());
                    assert_eq!(other, None, "number {} came twice", limit.number);
                }
            }
            assert_eq!(limit.generation, generation, "unchanged: {unchanged}");
        }
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn numbers_only_grow_and_every_replica_has_the_same_state_and_bytes(
        log in log(),
        snapshot_at in 0..60_usize,
    ) {
        let mut seen = Seen::default();
        let (mut one, mut other) = (State::default(), State::default());
        let mut applied = 0;
        for (index, command) in log.iter().enumerate() {
            assert_eq!(Command::decode(&command.encode()).as_ref(), Ok(command));
            if index == snapshot_at {
                // It fell behind and was sent a snapshot.
                other = State::decode(&one.encode()).expect("a state's bytes");
            }
            let before = one.clone();
            match (one.apply(command.clone()), other.apply(command.clone())) {
                (Ok(effects), Ok(_)) => {
                    applied += 1;
                    let changes = before.ring().epoch() != one.ring().epoch();
                    assert_eq!(effects.ring.is_some(), changes);
                    if let Some(change) = &effects.ring {
                        assert_eq!(one.change(), Some(change));
                        assert_eq!(RingChange::decode(&change.encode()).as_ref(), Ok(change));
                        assert_eq!(change.previous.epoch().next(), change.ring.epoch());
                        assert!(change.lost.iter().all(|&node| change.previous.contains(node)));
                        assert!(!change.lost.iter().any(|&node| change.ring.contains(node)));
                    }
                    seen.step(&before, command, &one, &effects.answer);
                }
                (Err(refused), Err(same)) => {
                    assert_eq!(refused, same);
                    assert_eq!(Refused::decode(&refused.encode()), Ok(same));
                    assert_eq!(before, one, "refused and changed");
                }
                (one, other) => panic!("{one:?} and {other:?}"),
            }
            assert_eq!(one, other);
            assert_eq!(one.encode(), other.encode());
            assert_eq!(one.index(), applied);
            assert!(one.history().len() <= 100);
        }
        for document in one.history() {
            assert_eq!(Document::decode(&document.encode()).as_ref(), Ok(&**document));
        }
        assert_eq!(State::decode(&one.encode()), Ok(one));
    }

    #[test]
    fn garbage_is_an_error_or_a_state_with_just_those_bytes(
        log in log(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        garbage in vec(any::<u8>(), 0..64),
    ) {
        let mut state = State::default();
        for command in log {
            let _ = state.apply(command);
        }
        let mut bytes = state.encode();
        for (place, byte) in &changes {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
        let cut = cut.index(bytes.len());
        let spliced = [&bytes[..cut], &garbage].concat();
        for bytes in [&bytes, &spliced, &garbage] {
            if let Ok(mut state) = State::decode(bytes) {
                assert_eq!(state.encode(), *bytes);
                // And it goes on as any other.
                let _ = state.apply(joining(None, 1));
            }
        }
    }

    #[test]
    fn garbage_is_an_error_or_a_command_with_just_those_bytes(
        command in command(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        garbage in vec(any::<u8>(), 0..64),
    ) {
        let mut bytes = command.encode();
        assert_eq!(Command::decode(&bytes), Ok(command));
        for (place, byte) in &changes {
            let place = place.index(bytes.len());
            bytes[place] = *byte;
        }
        for bytes in [&bytes, &garbage] {
            if let Ok(command) = Command::decode(bytes) {
                assert_eq!(command.encode(), *bytes);
            }
            if let Ok(refused) = Refused::decode(bytes) {
                assert_eq!(refused.encode(), *bytes);
            }
            if let Ok(answer) = Answer::decode(bytes) {
                assert_eq!(answer.encode(), *bytes);
            }
        }
    }

    #[test]
    fn garbage_is_an_error_or_a_change_or_document_with_just_those_bytes(
        log in log(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        garbage in vec(any::<u8>(), 0..64),
    ) {
        let mut state = State::default();
        for command in log {
            let _ = state.apply(command);
        }
        let change = state.change().map_or(garbage.clone(), RingChange::encode);
        let document = state.policy().map_or(garbage, |document| document.encode());
        for mut bytes in [change, document] {
            for (place, byte) in &changes {
                if let Some(length) = std::num::NonZero::new(bytes.len()) {
                    bytes[place.index(length.get())] = *byte;
                }
            }
            if let Ok(change) = RingChange::decode(&bytes) {
                assert_eq!(change.encode(), bytes);
            }
            if let Ok(document) = Document::decode(&bytes) {
                assert_eq!(document.encode(), bytes);
            }
        }
    }
}
