//! Which limit a descriptor reaches when a domain's limits have paths: a walk along the entries,
//! one step for each, that never turns back.
//!
//! At each step an entry's own text comes first, then texts with stars in the order of the limits,
//! then the entry's name alone. The limit at the end counts if the last entry led there. Texts are
//! joined as the original joins them, `name_value`, so that files for it mean the same here.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::key::{Part, Secret};
use crate::limit::Limit;
use crate::matcher::DigestHasher;
use crate::mutant::lacks;
use crate::path::{Pattern, STEPS_MAX, Step, StepKind};
use crate::request::{Descriptor, Entry};

/// The limits of one domain, by their paths.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// The first is where walks begin.
    nodes: Vec<Node>,
    /// Whether any limit puts others out of force.
    have_replaced: bool,
}

/// What may follow a step, and what stands at its end.
#[derive(Debug, Default)]
struct Node {
    /// The step that leads here, as written.
    step: String,
    /// Nodes by the digest of the step's text.
    exact: HashMap<u128, u32, BuildHasherDefault<DigestHasher>>,
    /// Nodes by texts with stars, in the order of the limits.
    patterns: Vec<(Pattern, u32)>,
    end: Option<End>,
}

/// What stands at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing: the descriptor has no limit.
    Blank,
    /// The limit at this position in the rule set.
    Limit(u32),
}

/// How a step was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum How {
    /// By the entry's name and value.
    #[default]
    Exact,
    /// By a text with stars.
    Pattern,
    /// By the entry's name alone.
    Any,
}

/// Where a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalkEnd {
    /// At a limit, which applies unless another one replaces it.
    Limit,
    /// At a path that is known and has no limit.
    Blank,
    /// At a step that has limits behind it, and none of its own.
    TooShort,
    /// Nothing was known for the entry behind the last step.
    NoStep,
}

/// How each step of a walk was taken; as many as the descriptor has entries.
pub(crate) type Hows = [How; STEPS_MAX];

/// The path is another limit's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken;

/// A step of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walked {
    /// What the limits call it: a name, or `name=value`.
    pub step: String,
    /// How it was taken.
    pub how: How,
}

impl Paths {
    /// Adds the limit at `position` in the rule set.
    ///
    /// # Errors
    /// When another limit has this path.
    pub(crate) fn add(
        &mut self,
        secret: &Secret,
        limit: &Limit,
        position: u32,
    ) -> Result<(), Taken> {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        self.have_replaced |= limit.replaces().len() > 0;
        let mut at = 0;
        for step in limit.steps() {
            at = self.child(secret, at, step);
        }
        let end = if limit.is_blank() { End::Blank } else { End::Limit(position) };
        match self.nodes[at as usize].end.replace(end) {
            None => Ok(()),
            Some(_) => Err(Taken),
        }
    }

    /// The node behind a step, which is made if there is none.
    fn child(&mut self, secret: &Secret, at: u32, step: &Step) -> u32 {
        let text = step.joined();
        let digest = secret.digest(text.as_bytes());
        let next = self.nodes.len() as u32;
        let node = &mut self.nodes[at as usize];
        if let Some(known) = node.exact.get(&digest) {
            return *known;
        }
        // A text with stars is matched by itself too, and that is the same node.
        node.exact.insert(digest, next);
        if let Some(pattern) = Pattern::new(&text) {
            node.patterns.push((pattern, next));
        }
        self.nodes.push(Node { step: step.to_string(), ..Node::default() });
        next
    }

    /// Whether any limit puts others out of force.
    pub(crate) fn have_replaced(&self) -> bool {
        self.have_replaced
    }

    /// Where the descriptor's entries lead; nothing if one of them leads nowhere.
    #[inline]
    pub(crate) fn walk(&self, secret: &Secret, descriptor: &Descriptor<'_>) -> Option<(End, Hows)> {
        let mut hows = Hows::default();
        let mut node = self.nodes.first()?;
        for (entry, how) in descriptor.entries().iter().zip(&mut hows) {
            let next;
            (next, *how) = node.next(secret, entry)?;
            node = &self.nodes[next as usize];
        }
        Some((node.end?, hows))
    }

    /// The steps that the descriptor's entries take, and where they end.
    pub(crate) fn explain(
        &self,
        secret: &Secret,
        descriptor: &Descriptor<'_>,
    ) -> (Vec<Walked>, WalkEnd) {
        let mut taken = Vec::new();
        let mut node = self.nodes.first();
        for entry in descriptor.entries() {
            let Some((next, how)) = node.and_then(|node| node.next(secret, entry)) else {
                return (taken, WalkEnd::NoStep);
            };
            node = self.nodes.get(next as usize);
            taken.extend(node.map(|node| Walked { step: node.step.clone(), how }));
        }
        let end = match node.and_then(|node| node.end) {
            Some(End::Limit(_)) => WalkEnd::Limit,
            Some(End::Blank) => WalkEnd::Blank,
            None => WalkEnd::TooShort,
        };
        (taken, end)
    }
}

impl Node {
    fn next(&self, secret: &Secret, entry: &Entry<'_>) -> Option<(u32, How)> {
        if self.exact.is_empty() {
            return None; // The end of all paths that come by.
        }
        let text = Joined::new(entry);
        let text = text.as_bytes();
        if let Some(next) = self.exact.get(&secret.digest(text)) {
            return Some((*next, How::Exact));
        }
        let mut patterns = self.patterns.iter();
        let found = if lacks("last_pattern_first") {
            patterns.rfind(|(pattern, _)| pattern.matches(text))
        } else {
            patterns.find(|(pattern, _)| pattern.matches(text))
        };
        if let Some((_, next)) = found {
            return Some((*next, How::Pattern));
        }
        let alone = self.exact.get(&secret.digest(entry.name().as_bytes()));
        alone.map(|next| (*next, How::Any))
    }
}

/// The parts of a key that a descriptor has under the limit that it reached.
pub(crate) fn key_parts<'a>(
    limit: &'a Limit,
    descriptor: &Descriptor<'a>,
    hows: &'a Hows,
) -> impl Iterator<Item = Part<'a>> {
    let steps = limit.steps().iter().zip(descriptor.entries()).zip(hows);
    let parts = steps.map(|((step, entry), how)| match (step.kind, how) {
        (StepKind::Shared, _) | (StepKind::Exact, How::Exact | How::Pattern) => [None, None],
        // The entry's name and value together are this step's name: one key more, without a value.
        (StepKind::Any, How::Exact | How::Pattern) => [Some(Part::Undeclared), None],
        (StepKind::NamePattern, _) => [Some(entry.name().into()), Some(Part::Text(entry.value()))],
        // The pattern is met by another name too, which ends in what the value begins with.
        (StepKind::Pattern, _) if entry.name() != &*step.name => {
            [Some(entry.name().into()), Some(Part::Text(entry.value()))]
        }
        _ => [Some(Part::Text(entry.value())), None],
    });
    parts.flatten().flatten()
}

/// An entry's name and value in one, on the stack if it is short.
struct Joined {
    few: [u8; JOINED_FEW],
    length: usize,
    many: Vec<u8>,
}

impl Joined {
    fn new(entry: &Entry<'_>) -> Self {
        let parts = [entry.name().as_bytes(), b"_", entry.value()];
        let length = parts.iter().map(|part| part.len()).sum();
        let mut joined = Self { few: [0; JOINED_FEW], length, many: Vec::new() };
        if length > JOINED_FEW {
            joined.many = parts.concat();
            return joined;
        }
        let mut rest = &mut joined.few[..];
        for part in parts {
            let (start, end) = rest.split_at_mut(part.len());
            start.copy_from_slice(part);
            rest = end;
        }
        joined
    }

    fn as_bytes(&self) -> &[u8] {
        if self.length <= JOINED_FEW { &self.few[..self.length] } else { &self.many }
    }
}

const JOINED_FEW: usize = 128;
