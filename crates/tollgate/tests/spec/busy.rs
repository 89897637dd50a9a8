//! A worker whose owner is busy: what was refused keeps its turn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tollgate::coordinator::RingChange;
use tollgate::{
    Drained, FleetLimitId, FleetRules, Input, Instant, KeyId, Member, Message, Node, NodeId,
    NodeOptions, Output, OwnerEpoch, Rate, Refusal, Report, ReportBatch, Ring, RingEpoch, Snapshot,
    SnapshotBatch, Usage, ViewLimit,
};

#[test]
fn keys_that_a_busy_owner_refused_are_reported_before_those_that_it_applied() {
    // More keys than one batch takes.
    let mut worker = Worker::new(600);
    let first = worker.run(50, |_| Answer::Applied);
    assert_eq!(keys_of(&first).len(), 600);
    // Then one batch of them is applied, and the next one is refused.
    let mut large = 0;
    let second = worker.run(150, |batch| {
        large += u32::from(batch.reports.len() > 80);
        if large > 1 { Answer::Busy(Duration::from_millis(120)) } else { Answer::Applied }
    });
    let refused = keys_of(&second[second.len() - 1..]);
    assert_eq!((large, second.len() > 1), (2, true));
    // When both are due again.
    let third = worker.run(400, |_| Answer::Busy(Duration::from_millis(400)));
    let next = keys_of(&third[..1]);
    assert!(next.len() < 600);
    assert!(refused.is_subset(&next), "they had to wait for those that were applied");
}

enum Answer {
    Applied,
    Busy(Duration),
}

/// A worker that was refused a unit of each of its keys, and asks for it.
struct Worker {
    node: Node,
    millis: u64,
    sent: Vec<ReportBatch>,
}

impl Worker {
    fn new(keys: u32) -> Self {
        let node = Node::new(NodeId::new(2), NodeOptions::default());
        let mut worker = Self { node, millis: 1, sent: Vec::new() };
        let member = Member { node: OWNER, weight: 1 };
        let ring = Arc::new(Ring::new(RING, [member]).expect("one member"));
        let previous = Arc::new(Ring::new(RingEpoch::ZERO, []).expect("no member"));
        let change = RingChange { ring, previous, lost: [].into() };
        let age = Duration::ZERO;
        worker.tell(Input::Ring { change, age, start: 1, is_restart: false });
        let rate = Rate::parse("10/s").expect("a rate");
        let limit = ViewLimit::new(rate, 10, 1, Duration::from_millis(5));
        let limits = BTreeMap::from([(LIMIT, limit)]);
        worker.tell(Input::Rules(FleetRules { revision: 1, limits, ..FleetRules::default() }));
        for number in 0..keys {
            let key = KeyId::from_bits(u64::from(number + 2) << 32, number);
            let drained = Drained {
                key,
                limit: LIMIT,
                base: Some(0),
                taken: 0,
                denied: 1,
                refused: 1,
                refund: None,
            };
            let usage = Usage {
                limit: LIMIT,
                drained,
                returned: 0,
                waiting: 0,
                is_brief: false,
                refused: 1,
            };
            worker.tell(Input::Usage(usage));
        }
        worker
    }

    /// Runs until then, and returns the batches that it sent, each of which is answered a
    /// millisecond later.
    fn run(
        &mut self,
        until: u64,
        mut answer: impl FnMut(&ReportBatch) -> Answer,
    ) -> Vec<ReportBatch> {
        let mut batches = Vec::new();
        while self.millis < until {
            self.millis += 1;
            for batch in std::mem::take(&mut self.sent) {
                let message = match answer(&batch) {
                    Answer::Busy(retry_after) => {
                        Message::Refused { batch: batch.batch, why: Refusal::Busy { retry_after } }
                    }
                    Answer::Applied => Message::Snapshots(self.snapshots(&batch)),
                };
                self.tell(Input::Message { from: OWNER, message });
                batches.push(batch);
            }
            self.tell(Input::Timeout);
        }
        batches
    }

    fn tell(&mut self, input: Input) {
        self.node.handle(input, at(self.millis));
        loop {
            match self.node.poll() {
                Output::Send { message: Message::Reports(batch), .. } => self.sent.push(batch),
                Output::Timeout(_) => return,
                _ => {}
            }
        }
    }

    /// Nothing is left, and each key is to be reported every 100 ms.
    fn snapshots(&self, batch: &ReportBatch) -> SnapshotBatch {
        let snapshot = |report: &Report| Snapshot {
            key: report.key,
            cell_epoch: report.cell_epoch,
            version: self.millis,
            ack_sequence: report.sequence,
            acked: report.taken,
            floor: report.taken,
            ceiling: report.taken,
            ttl: Duration::ZERO,
            cadence: Duration::from_millis(100),
            remaining: 0,
            free: 0,
            generation: 1,
            stamp: at(self.millis),
        };
        SnapshotBatch {
            answers: Some(batch.batch),
            owner_epoch: OwnerEpoch { ring: RING, start: 1 },
            snapshots: batch.reports.iter().map(snapshot).collect(),
            allotments: Vec::new(),
        }
    }
}

fn keys_of(batches: &[ReportBatch]) -> BTreeSet<KeyId> {
    batches.iter().flat_map(|batch| &batch.reports).map(|report| report.key).collect()
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + millis * 1_000_000)
}

const OWNER: NodeId = NodeId::new(1);
const LIMIT: FleetLimitId = FleetLimitId(0);
const RING: RingEpoch = RingEpoch::new(1);
