//! What is asked of a server for additions and reads, and what its replies say of them.

use crate::connection::Exchange;
use crate::decoder::{Bounds, Reply, put_command};
use crate::refusal::Refusal;
use tollgate::Addition;
use tollgate::tally::Outcome;

/// Additions for one server, as one request: `INCRBY` and `EXPIREAT` for each.
///
/// Units come first: were it the expiry, a counter that is new would get none. A connection that
/// breaks between the two leaves a counter without an expiry, until the next addition to it.
#[derive(Debug)]
pub(crate) struct Writes {
    pub(crate) exchange: Exchange,
    /// Where in the request each `INCRBY` ends.
    ends: Vec<usize>,
}

/// Pairs of counters that are read from one server, as one request.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) exchange: Exchange,
    pairs: usize,
    pairs_in_each: usize,
}

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer<T> {
    /// One for each that was asked.
    pub(crate) values: Vec<T>,
    /// What the server refused, with its words.
    pub(crate) refusals: Vec<(Refusal, String)>,
    /// For each counter that has no expiry, as far as is known, why.
    pub(crate) expiries_failed: Vec<String>,
    /// Whether the server was not reached, or what it said made no sense.
    pub(crate) is_lost: bool,
}

/// Two counts, the previous window's and this one's.
pub(crate) type Pair = Option<(u64, u64)>;

impl Writes {
    pub(crate) fn new<'a>(additions: impl IntoIterator<Item = &'a Addition>) -> Self {
        let (mut request, mut ends) = (Vec::new(), Vec::new());
        for Addition { name, units, expires_at } in additions {
            let (name, units) = (name.as_bytes(), units.to_string());
            put_command(&mut request, &[b"INCRBY", name, units.as_bytes()]);
            ends.push(request.len());
            put_command(&mut request, &[b"EXPIREAT", name, expires_at.to_string().as_bytes()]);
        }
        let wanted = ends.len() * 2;
        Self { exchange: Exchange::new(request, wanted, NO_STRINGS), ends }
    }

    /// None of them left.
    pub(crate) fn not_sent(&self) -> Answer<Outcome> {
        Answer::lost(vec![Outcome::NotSent; self.ends.len()])
    }

    /// What became of each, from what was written and what was answered.
    pub(crate) fn answer(&self) -> Answer<Outcome> {
        let Exchange { written, replies, wanted, .. } = &self.exchange;
        let mut answer = Answer::new();
        for (place, end) in self.ends.iter().enumerate() {
            let outcome = match replies.get(place * 2) {
                Some(Reply::Integer(_)) => Outcome::Done,
                Some(Reply::Error(error)) => answer.refuse(error).outcome(),
                // A server carries out no command of which a part is missing.
                None if *written < *end => Outcome::NotSent,
                None => Outcome::Unknown,
                Some(_) => {
                    answer.is_lost = true;
                    Outcome::Unknown
                }
            };
            answer.values.push(outcome);
            if outcome == Outcome::Done {
                answer.expiries_failed.extend(no_expiry(replies.get(place * 2 + 1)));
            }
        }
        answer.is_lost |= replies.len() < *wanted;
        answer
    }
}

impl Reads {
    /// One `MGET` for all counters.
    pub(crate) fn together(names: &[[String; 2]]) -> Self {
        Self::new(names.iter().flatten(), names.len() * 2, names.len())
    }

    /// One `MGET` for each pair: a node of a cluster takes counters of one slot together, and no
    /// others.
    pub(crate) fn by_pair<'a>(names: impl IntoIterator<Item = &'a [String; 2]>) -> Self {
        let names: Vec<&[String; 2]> = names.into_iter().collect();
        Self::new(names.iter().copied().flatten(), 2, names.len())
    }

    /// So many names in each command.
    fn new<'a>(names: impl Iterator<Item = &'a String>, in_each: usize, pairs: usize) -> Self {
        let names: Vec<&[u8]> = names.map(String::as_bytes).collect();
        let (mut request, mut commands) = (Vec::new(), 0);
        for names in names.chunks(in_each) {
            let mut words: Vec<&[u8]> = vec![b"MGET"];
            words.extend(names);
            put_command(&mut request, &words);
            commands += 1;
        }
        // The number of a counter has at most 20 characters.
        let bounds = Bounds { elements: names.len(), string_bytes: 32 };
        let exchange = Exchange::new(request, commands, bounds);
        Self { exchange, pairs, pairs_in_each: in_each / 2 }
    }

    pub(crate) fn not_sent(&self) -> Answer<Pair> {
        Answer::lost(vec![None; self.pairs])
    }

    /// The counts of the pairs that the server told.
    pub(crate) fn answer(&self) -> Answer<Pair> {
        let mut answer = Answer::new();
        for reply in &self.exchange.replies {
            let pair = |two: &[Reply]| Some((count(&two[0]), count(&two[1])));
            match reply {
                Reply::Array(counts) if counts.len() == self.pairs_in_each * 2 => {
                    answer.values.extend(counts.chunks_exact(2).map(pair));
                    continue;
                }
                Reply::Error(error) => {
                    answer.refuse(error);
                }
                _ => answer.is_lost = true,
            }
            answer.values.resize(answer.values.len() + self.pairs_in_each, None);
        }
        answer.is_lost |= answer.values.len() < self.pairs;
        answer.values.resize(self.pairs, None);
        answer
    }
}

impl<T> Answer<T> {
    fn new() -> Self {
        Self {
            values: Vec::new(),
            refusals: Vec::new(),
            expiries_failed: Vec::new(),
            is_lost: false,
        }
    }

    /// The server was not reached.
    pub(crate) fn lost(values: Vec<T>) -> Self {
        Self { values, is_lost: true, ..Self::new() }
    }

    fn refuse(&mut self, error: &str) -> Refusal {
        let refusal = Refusal::of(error);
        self.refusals.push((refusal.clone(), error.to_owned()));
        refusal
    }
}

/// Why a counter that is there has no expiry. One that is gone by then needs none.
fn no_expiry(reply: Option<&Reply>) -> Option<String> {
    match reply {
        Some(Reply::Integer(_)) => None,
        Some(Reply::Error(error)) => Some(error.clone()),
        Some(_) | None => Some("no answer".to_owned()),
    }
}

/// What is no count counts as none.
fn count(reply: &Reply) -> u64 {
    let Reply::Bytes(bytes) = reply else { return 0 };
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

const NO_STRINGS: Bounds = Bounds { elements: 0, string_bytes: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(count: usize) -> Writes {
        let addition = Addition { name: "a".to_owned(), units: 2, expires_at: 9 };
        Writes::new(&vec![addition; count])
    }

    #[test]
    fn each_addition_has_the_outcome_that_its_own_reply_tells() {
        let mut writes = writes(4);
        writes.exchange.written = writes.exchange.request.len();
        writes.exchange.replies = vec![
            Reply::Integer(2),
            Reply::Integer(1),
            Reply::Error("OOM command not allowed".to_owned()),
            Reply::Integer(0),
            Reply::Integer(2),
            Reply::Error("ERR".to_owned()),
        ];
        let answer = writes.answer();
        let wanted = [Outcome::Done, Outcome::NotSent, Outcome::Done, Outcome::Unknown];
        assert_eq!(answer.values, wanted);
        assert_eq!(answer.expiries_failed, ["ERR"]);
        assert_eq!(answer.refusals, [(Refusal::Memory, "OOM command not allowed".to_owned())]);
        assert!(answer.is_lost);
    }

    #[test]
    fn an_addition_of_which_a_part_never_left_is_surely_not_there() {
        let mut writes = writes(2);
        writes.exchange.written = writes.ends[0] - 1;
        assert_eq!(writes.answer().values, [Outcome::NotSent, Outcome::NotSent]);
        writes.exchange.written = writes.ends[0];
        assert_eq!(writes.answer().values, [Outcome::Unknown, Outcome::NotSent]);
        writes.exchange.written = writes.ends[1];
        assert_eq!(writes.answer().values, [Outcome::Unknown, Outcome::Unknown]);
    }

    #[test]
    fn what_is_no_count_is_read_as_none() {
        let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let replies = [
            bytes("18446744073709551615"),
            bytes("-1"),
            bytes("x"),
            Reply::Nothing,
            bytes("7"),
            bytes("99999999999999999999"),
        ];
        let names = vec![["a".to_owned(), "b".to_owned()]; 3];
        let mut together = Reads::together(&names);
        together.exchange.replies = vec![Reply::Array(replies.to_vec())];
        let wanted = [Some((u64::MAX, 0)), Some((0, 0)), Some((7, 0))];
        assert_eq!(together.answer().values, wanted);
        together.exchange.replies = vec![Reply::Array(replies[..4].to_vec())];
        let answer = together.answer();
        assert_eq!((answer.values, answer.is_lost), (vec![None; 3], true));
    }

    #[test]
    fn a_pair_whose_reply_came_is_read_whatever_became_of_others() {
        let mut reads = Reads::by_pair(&vec![["a".to_owned(), "b".to_owned()]; 3]);
        assert_eq!(reads.exchange.wanted, 3);
        let one = Reply::Bytes(b"1".to_vec());
        let moved = Reply::Error("MOVED 1 a:1".to_owned());
        reads.exchange.replies = vec![moved, Reply::Array(vec![one, Reply::Nothing])];
        let answer = reads.answer();
        assert_eq!(answer.values, [None, Some((1, 0)), None]);
        assert_eq!((answer.refusals.len(), answer.is_lost), (1, true));
    }
}
