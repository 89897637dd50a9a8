//! Which of several servers is the one to use: the first that says it is a primary, else the first
//! replica. Sentinels are asked where the primary is, and it is asked whether it is one.

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::connection::{Access, Connection, Failed, Greeting};
use crate::decoder::{Bounds, Reply};
use crate::health::{FailureKind, Role};
use crate::options::Address;

/// Where a server is looked for.
pub(crate) struct Seek {
    /// Servers, or the sentinels that know them.
    pub(crate) addresses: Vec<Address>,
    /// What the server lets in.
    pub(crate) access: Access,
    pub(crate) sentinel: Option<Sentinel>,
}

/// How sentinels are asked.
#[derive(Clone)]
pub(crate) struct Sentinel {
    pub(crate) service: String,
    pub(crate) access: Access,
}

/// A server that answers.
pub(crate) struct Found {
    pub(crate) connection: Connection,
    pub(crate) greeting: Greeting,
    pub(crate) address: Address,
}

impl Seek {
    /// Tries all addresses at once, until it is clear which to use or the time is over.
    pub(crate) async fn find(&self, deadline: Instant) -> Result<Found, Failed> {
        let mut tries = JoinSet::new();
        for (place, address) in self.addresses.iter().cloned().enumerate() {
            let (access, sentinel) = (self.access.clone(), self.sentinel.clone());
            tries.spawn(async move { (place, answer(address, access, sentinel).await) });
        }
        let mut answers: Vec<Option<Result<Found, Failed>>> = Vec::new();
        answers.resize_with(self.addresses.len(), || None);
        while !is_settled(&answers)
            && let Ok(Some(answered)) = timeout_at(deadline, tries.join_next()).await
        {
            // One that panicked has no answer.
            if let Ok((place, answer)) = answered {
                answers[place] = Some(answer);
            }
        }
        choose(answers)
    }

    /// Makes another connection to a server that was found.
    pub(crate) async fn open(&self, address: &Address) -> Result<Found, Failed> {
        found(address.clone(), &self.access).await
    }
}

async fn answer(
    address: Address,
    access: Access,
    sentinel: Option<Sentinel>,
) -> Result<Found, Failed> {
    let Some(Sentinel { service, access: sentinel }) = sentinel else {
        return found(address, &access).await;
    };
    let mut connection = Connection::open(&address, &sentinel).await?;
    let words: &[&[u8]] = &[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service.as_bytes()];
    let bounds = Bounds { elements: 2, string_bytes: 1024 };
    let reply = connection.ask(words, bounds).await?;
    let primary = primary(&reply).ok_or_else(|| Failed {
        kind: FailureKind::Refused,
        text: format!("the sentinel at {address} knows no {service}"),
    })?;
    found(primary, &access).await
}

async fn found(address: Address, access: &Access) -> Result<Found, Failed> {
    let named = |failed: Failed| Failed { text: format!("{address}: {}", failed.text), ..failed };
    let mut connection = Connection::open(&address, access).await.map_err(named)?;
    let greeting = connection.greet().await.map_err(named)?;
    Ok(Found { connection, greeting, address })
}

fn primary(reply: &Reply) -> Option<Address> {
    let Reply::Array(both) = reply else { return None };
    let [Reply::Bytes(host), Reply::Bytes(port)] = &both[..] else { return None };
    let host = String::from_utf8(host.clone()).ok()?;
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    Some(Address::Tcp { host, port })
}

/// Whether the first primary is known: nobody before it can turn out to be one.
fn is_settled(answers: &[Option<Result<Found, Failed>>]) -> bool {
    for answer in answers {
        match answer {
            None => return false,
            Some(Ok(found)) if found.greeting.role == Role::Primary => return true,
            Some(_) => {}
        }
    }
    true
}

/// Of failures, one that tells what people can mend is told.
fn choose(answers: Vec<Option<Result<Found, Failed>>>) -> Result<Found, Failed> {
    let mut replica = None;
    let mut failed = Failed::timed_out();
    for answer in answers.into_iter().flatten() {
        match answer {
            Ok(found) if found.greeting.role == Role::Primary => return Ok(found),
            Ok(found) => {
                replica.get_or_insert(found);
            }
            Err(other) if failed.kind == FailureKind::TimedOut => failed = other,
            Err(other) if other.kind == FailureKind::Auth => failed = other,
            Err(_) => {}
        }
    }
    replica.ok_or(failed)
}
