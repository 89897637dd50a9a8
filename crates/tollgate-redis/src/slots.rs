//! Which node of a cluster has which counter (the Redis cluster specification): a name's slot is
//! made of its hash tag, and nodes say who has which slots.

use crate::decoder::Reply;
use crate::options::Address;

/// Who has which slots, as one node knew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slots {
    nodes: Vec<Address>,
    /// The place in `nodes` of each slot's primary.
    owners: Vec<Option<u16>>,
}

impl Slots {
    /// Reads the reply to `CLUSTER SLOTS`; `asked` is who gave it. One that knows of none is in no
    /// cluster.
    pub(crate) fn of(reply: &Reply, asked: &Address) -> Option<Self> {
        let Reply::Array(ranges) = reply else { return None };
        let mut slots = Self { nodes: Vec::new(), owners: vec![None; usize::from(SLOTS)] };
        for range in ranges {
            let Reply::Array(range) = range else { return None };
            let [Reply::Integer(first), Reply::Integer(last), Reply::Array(primary), ..] =
                &range[..]
            else {
                return None;
            };
            let [host, Reply::Integer(port), ..] = &primary[..] else { return None };
            let host = match host {
                Reply::Bytes(host) => String::from_utf8_lossy(host).into_owned(),
                _ => String::new(),
            };
            let first = usize::try_from(*first).ok()?;
            let last = usize::try_from(*last).ok()?;
            let node = slots.place(address(&host, u16::try_from(*port).ok()?, asked)?)?;
            slots.owners.get_mut(first..=last)?.fill(Some(node));
        }
        (!slots.nodes.is_empty()).then_some(slots)
    }

    /// A node says that a slot is elsewhere.
    pub(crate) fn moved(&mut self, slot: u16, to: Address) {
        if let Some(node) = self.place(to) {
            self.owners[usize::from(slot)] = Some(node);
        }
    }

    pub(crate) fn owner(&self, name: &str) -> Option<&Address> {
        let node = self.owners[usize::from(slot(name))]?;
        self.nodes.get(usize::from(node))
    }

    pub(crate) fn nodes(&self) -> &[Address] {
        &self.nodes
    }

    fn place(&mut self, node: Address) -> Option<u16> {
        let place = self.nodes.iter().position(|known| *known == node).unwrap_or_else(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        u16::try_from(place).ok()
    }
}

/// Where a node is that another told of; no host, or one that is not known, is the host of that
/// other.
pub(crate) fn address(host: &str, port: u16, asked: &Address) -> Option<Address> {
    match (host, asked) {
        ("" | "?", Address::Tcp { host, .. }) => Some(Address::Tcp { host: host.clone(), port }),
        ("" | "?", Address::Unix(_)) => None,
        (host, _) => Some(Address::Tcp { host: host.to_owned(), port }),
    }
}

/// The slot of a name: of what is between its first `{` and the next `}`, if that is anything.
fn slot(name: &str) -> u16 {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(name);
    crc16(hashed.as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    })
}

/// The slots of every cluster.
pub(crate) const SLOTS: u16 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        // The specification's own check of the sum; the rest as `CLUSTER KEYSLOT` answers.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (name, wanted) in [
            ("foo", 12182),
            ("{user1000}.following", 3443),
            ("user1000", 3443),
            ("foo{}{bar}", 8363),
            ("foo{{bar}}zap", 4015),
            ("foo{bar}{zap}", 5061),
            ("bar", 5061),
        ] {
            assert_eq!(slot(name), wanted, "{name}");
        }
    }

    #[test]
    fn a_reply_says_who_has_which_slots() {
        let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        let range = |first, last, host: Reply, port| {
            let replica = Reply::Array(vec![bytes("10.0.0.9"), Reply::Integer(9)]);
            let primary = Reply::Array(vec![host, Reply::Integer(port), bytes("id")]);
            Reply::Array(vec![Reply::Integer(first), Reply::Integer(last), primary, replica])
        };
        let all = [
            range(0, 5061, bytes("10.0.0.1"), 1),
            range(5062, 12181, Reply::Nothing, 2),
            range(12183, 16383, bytes("10.0.0.1"), 1),
        ];
        let asked = node("10.0.0.3", 3);
        let mut slots = Slots::of(&Reply::Array(all.to_vec()), &asked).expect("slots");
        assert_eq!(slots.nodes(), [node("10.0.0.1", 1), node("10.0.0.3", 2)]);
        assert_eq!(slots.owner("bar"), Some(&node("10.0.0.1", 1)));
        assert_eq!(slots.owner("foo{}{bar}"), Some(&node("10.0.0.3", 2)));
        assert_eq!(slots.owner("foo"), None);
        slots.moved(12182, node("10.0.0.4", 4));
        assert_eq!(slots.owner("foo"), Some(&node("10.0.0.4", 4)));
        for wrong in [
            Reply::Nothing,
            Reply::Array(Vec::new()),
            Reply::Array(vec![Reply::Nothing]),
            Reply::Array(vec![range(0, 16384, bytes("a"), 1)]),
            Reply::Array(vec![range(2, 0, bytes("a"), 1)]),
            Reply::Array(vec![range(0, 1, bytes("a"), 65536)]),
        ] {
            assert_eq!(Slots::of(&wrong, &asked), None, "{wrong:?}");
        }
    }
}
