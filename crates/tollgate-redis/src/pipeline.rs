//! What is asked of a server for additions and reads, and what its replies say of them.

use crate::connection::Exchange;
use crate::decoder::{Bounds, Reply, put_command};
use crate::outcome::{Addition, Outcome};
use crate::refusal::Refusal;

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

/// What was answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer<T> {
    /// One for each that was asked.
    pub(crate) values: Vec<T>,
    /// What the server refused, with its words.
    pub(crate) refusals: Vec<(Refusal, String)>,
    /// Counters without the expiry that they were to have.
    pub(crate) expiries_failed: u64,
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
            let is_set = matches!(replies.get(place * 2 + 1), Some(Reply::Integer(1)));
            answer.expiries_failed += u64::from(outcome == Outcome::Done && !is_set);
        }
        answer.is_lost |= replies.len() < *wanted;
        answer
    }
}

/// One `MGET` for all counters.
pub(crate) fn reads<'a>(names: impl IntoIterator<Item = &'a [String; 2]>) -> Exchange {
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend(names.into_iter().flatten().map(String::as_bytes));
    let mut request = Vec::new();
    put_command(&mut request, &words);
    // The number of a counter has at most 20 characters.
    Exchange::new(request, 1, Bounds { elements: words.len() - 1, string_bytes: 32 })
}

/// The counts of so many pairs, if the server told them.
pub(crate) fn read_answer(replies: &[Reply], pairs: usize) -> Answer<Pair> {
    let mut answer = Answer::new();
    match replies {
        [Reply::Array(counts)] if counts.len() == pairs * 2 => {
            let pair = |two: &[Reply]| Some((count(&two[0]), count(&two[1])));
            answer.values = counts.chunks_exact(2).map(pair).collect();
            return answer;
        }
        [Reply::Error(error)] => {
            answer.refuse(error);
        }
        _ => answer.is_lost = true,
    }
    answer.values = vec![None; pairs];
    answer
}

impl<T> Answer<T> {
    fn new() -> Self {
        Self { values: Vec::new(), refusals: Vec::new(), expiries_failed: 0, is_lost: false }
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
        assert_eq!(answer.expiries_failed, 1);
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
        let answer = read_answer(&[Reply::Array(replies.to_vec())], 3);
        assert_eq!(answer.values, [Some((u64::MAX, 0)), Some((0, 0)), Some((7, 0))]);
        let other = read_answer(&[Reply::Array(replies.to_vec())], 2);
        assert_eq!((other.values, other.is_lost), (vec![None, None], true));
    }
}
