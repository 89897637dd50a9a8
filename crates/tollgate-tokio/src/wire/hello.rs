//! How a connection begins: which version is spoken, that both sides know the secret, who is
//! there and what for.
//!
//! ```text
//! dials    "tollgate" | min u16 | max u16 | nonce 32
//! answers  "tollgate" | version u16, 0 if none fits | min u16 | max u16 | nonce 32 | proof 32
//! dials    fleet u64 | purpose u8 | to u32 | node u32 | start u64 | proof 32
//! answers  verdict u8 | fleet u64 | node u32
//! ```
//!
//! Numbers are little-endian. A proof is the HMAC-SHA-256, by the secret, of who proves and of all
//! that was said before it on the connection, but for the other proof; without a secret the key is
//! empty. The secret itself never travels, and whoever dials learns that the other knows it before
//! it says anything. What is said later is neither encrypted nor authenticated: that is TLS's part.
//!
//! Addresses are used again, by another start of a process or by another process. Whoever dials a
//! certain node says so, and whoever else is there refuses.

use std::time::Duration;
use std::{fmt, io};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tollgate::NodeId;

/// A secret that all members of a fleet know. It is never printed and never sent.
#[derive(Clone, Default)]
pub struct PeerSecret(Box<[u8]>);

impl PeerSecret {
    /// The secret of these bytes; empty, there is none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_some(&self) -> bool {
        !self.0.is_empty()
    }

    fn proof(&self, whose: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut proof =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length is one");
        proof.update(whose);
        parts.iter().for_each(|part| proof.update(part));
        proof
    }
}

impl fmt::Debug for PeerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerSecret(..)")
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Nodes' messages, from the node that dialled.
    Peer,
    /// A node's session with a replica of the coordinator.
    Session,
    /// What replicas of the coordinator say to each other.
    Coordinator,
}

/// Who dials, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The fleet, by its number; 0 if it is not known yet.
    pub fleet: u64,
    /// What for.
    pub purpose: Purpose,
    /// The node that is meant; `None` is whichever is there.
    pub to: Option<NodeId>,
    /// The node; `None` if it has no number yet.
    pub node: Option<NodeId>,
    /// The start of its process, 0 if it has none yet.
    pub start: u64,
}

/// Who is there, as whoever dials is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Host {
    /// Its fleet, by its number; 0 if it is not known yet.
    pub fleet: u64,
    /// The node; `None` if it has no number yet.
    pub node: Option<NodeId>,
}

/// Why two processes don't talk.
#[derive(Debug)]
pub enum HelloError {
    /// The connection broke.
    Io(io::Error),
    /// The other said nothing in time.
    TimedOut,
    /// The other speaks something else.
    NotTollgate,
    /// The other speaks none of the versions that are spoken here.
    Version {
        /// The lowest that it speaks.
        min: u16,
        /// The highest.
        max: u16,
    },
    /// The other has another secret, or one has none.
    Secret,
    /// The other belongs to another fleet.
    Fleet {
        /// Which.
        fleet: u64,
    },
    /// The other is not the node that was meant.
    Node {
        /// Which it is, or was meant; `None` if it has no number yet.
        node: Option<NodeId>,
    },
    /// Nothing is there for this purpose.
    NotServed,
    /// The other says what no version says.
    Malformed,
}

impl HelloError {
    /// Whether trying again can't help.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Secret | Self::Version { .. } | Self::Fleet { .. } => true,
            Self::Io(_)
            | Self::TimedOut
            | Self::NotTollgate
            | Self::Node { .. }
            | Self::NotServed
            | Self::Malformed => false,
        }
    }
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::NotTollgate => f.write_str("what is there is no member of a tollgate fleet"),
            Self::Version { min, max } => write!(
                f,
                "it speaks versions {min} to {max} of the protocol, and this {VERSION_MIN} to \
                 {VERSION_MAX}"
            ),
            Self::Secret => f.write_str("its secret is another one (--peer-secret-file)"),
            Self::Fleet { fleet } => write!(f, "it belongs to another fleet, {fleet:016x}"),
            Self::Node { node: Some(node) } => {
                write!(f, "it is not the node that was meant ({})", node.get())
            }
            Self::Node { node: None } => f.write_str("it has no node's number yet"),
            Self::NotServed => f.write_str("it does not serve that, or not yet"),
            Self::Malformed => f.write_str("it says what no version of the protocol says"),
        }
    }
}

impl std::error::Error for HelloError {}

impl From<io::Error> for HelloError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Introduces this side on a connection that it made. Returns the version that is spoken from now
/// on, and who is there.
///
/// # Errors
/// [`HelloError`]; the connection is of no use.
pub async fn introduce(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    secret: &PeerSecret,
    hello: &Hello,
) -> Result<(u16, Host), HelloError> {
    within(async {
        let dials = first(None);
        stream.write_all(&dials).await?;
        let answers: [u8; ANSWER_BYTES] = read_first(stream).await?;
        let proof: [u8; 32] = read(stream).await?;
        let [version, min, max] = [0, 2, 4].map(|at| number(&answers, MAGIC.len() + at));
        if !(VERSION_MIN..=VERSION_MAX).contains(&version) {
            return Err(HelloError::Version { min, max });
        }
        let expected = secret.proof(ANSWERS, &[&dials, &answers]);
        expected.verify_slice(&proof).map_err(|_| HelloError::Secret)?;
        let mut said = hello.encode();
        let proof = secret.proof(DIALS, &[&dials, &answers, &said]).finalize().into_bytes();
        said.extend(proof);
        stream.write_all(&said).await?;
        let [verdict] = read(stream).await?;
        let fleet = u64::from_le_bytes(read(stream).await?);
        let node = node_of(read(stream).await?);
        match verdict {
            WELCOME => Ok((version, Host { fleet, node })),
            OTHER_SECRET => Err(HelloError::Secret),
            OTHER_FLEET => Err(HelloError::Fleet { fleet }),
            NOT_SERVED => Err(HelloError::NotServed),
            OTHER_NODE => Err(HelloError::Node { node }),
            _ => Err(HelloError::Malformed),
        }
    })
    .await
}

/// Hears who made a connection to this side, which is `host`, and answers. `serves` says whether
/// anything is there for a purpose.
///
/// Not a byte is read beyond the introduction.
///
/// # Errors
/// [`HelloError`]; the other side was told why, as far as it could be, and is to be hung up on.
pub async fn answer(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    secret: &PeerSecret,
    host: Host,
    serves: impl Fn(Purpose) -> bool,
) -> Result<Hello, HelloError> {
    within(async {
        let dials: [u8; DIAL_BYTES] = read_first(stream).await?;
        let [min, max] = [0, 2].map(|at| number(&dials, MAGIC.len() + at));
        let version = max.min(VERSION_MAX);
        let fits = version >= min.max(VERSION_MIN);
        let answers = first(Some(if fits { version } else { 0 }));
        let proof = secret.proof(ANSWERS, &[&dials, &answers]).finalize().into_bytes();
        stream.write_all(&[&answers[..], &proof].concat()).await?;
        if !fits {
            return Err(HelloError::Version { min, max });
        }
        let said: [u8; HELLO_BYTES] = read(stream).await?;
        let proof: [u8; 32] = read(stream).await?;
        let expected = secret.proof(DIALS, &[&dials, &answers, &said]);
        let verdict = if expected.verify_slice(&proof).is_err() {
            Err((OTHER_SECRET, HelloError::Secret))
        } else {
            judge(&said, host, serves)
        };
        let code = verdict.as_ref().map_or_else(|(code, _)| *code, |_| WELCOME);
        // Whoever has not shown that it knows the secret does not learn who is here.
        let told = if code == OTHER_SECRET { Host::default() } else { host };
        let mut last = vec![code];
        last.extend(told.fleet.to_le_bytes());
        last.extend(told.node.map_or(0, NodeId::get).to_le_bytes());
        stream.write_all(&last).await?;
        verdict.map_err(|(_, error)| error)
    })
    .await
}

/// Whether this side is who is looked for, and the verdict's number if it is not.
fn judge(
    said: &[u8; HELLO_BYTES],
    host: Host,
    serves: impl Fn(Purpose) -> bool,
) -> Result<Hello, (u8, HelloError)> {
    let Some(hello) = Hello::decode(said) else { return Err((NOT_SERVED, HelloError::Malformed)) };
    let Hello { fleet, purpose, to, .. } = hello;
    if fleet != 0 && host.fleet != 0 && fleet != host.fleet {
        Err((OTHER_FLEET, HelloError::Fleet { fleet }))
    } else if to.is_some() && to != host.node {
        Err((OTHER_NODE, HelloError::Node { node: to }))
    } else if !serves(purpose) {
        Err((NOT_SERVED, HelloError::NotServed))
    } else {
        Ok(hello)
    }
}

/// What either side says first; the one that answers says which version is spoken.
fn first(version: Option<u16>) -> Vec<u8> {
    let mut out = Vec::with_capacity(ANSWER_BYTES + 32);
    out.extend(MAGIC);
    version.into_iter().for_each(|version| out.extend(version.to_le_bytes()));
    out.extend(VERSION_MIN.to_le_bytes());
    out.extend(VERSION_MAX.to_le_bytes());
    out.extend(nonce());
    out
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HELLO_BYTES + 32);
        out.extend(self.fleet.to_le_bytes());
        out.push(match self.purpose {
            Purpose::Peer => 1,
            Purpose::Session => 2,
            Purpose::Coordinator => 3,
        });
        out.extend(self.to.map_or(0, NodeId::get).to_le_bytes());
        out.extend(self.node.map_or(0, NodeId::get).to_le_bytes());
        out.extend(self.start.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let (fleet, rest) = bytes.split_first_chunk::<8>()?;
        let ([purpose], rest) = rest.split_first_chunk::<1>()?;
        let (to, rest) = rest.split_first_chunk::<4>()?;
        let (node, rest) = rest.split_first_chunk::<4>()?;
        let start = rest.first_chunk::<8>()?;
        let purpose = match purpose {
            1 => Purpose::Peer,
            2 => Purpose::Session,
            3 => Purpose::Coordinator,
            _ => return None,
        };
        let (fleet, start) = (u64::from_le_bytes(*fleet), u64::from_le_bytes(*start));
        Some(Self { fleet, purpose, to: node_of(*to), node: node_of(*node), start })
    }
}

fn node_of(bytes: [u8; 4]) -> Option<NodeId> {
    Some(u32::from_le_bytes(bytes)).filter(|&node| node != 0).map(NodeId::new)
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

async fn within<T>(doing: impl Future<Output = Result<T, HelloError>>) -> Result<T, HelloError> {
    tokio::time::timeout(PATIENCE, doing).await.unwrap_or(Err(HelloError::TimedOut))
}

/// What the other side says first. Whoever speaks something else may say less than that, and is
/// known by its first bytes.
async fn read_first<const N: usize>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<[u8; N], HelloError> {
    let mut bytes = [0; N];
    let (magic, rest) = bytes.split_at_mut(MAGIC.len());
    read_into(stream, magic).await?;
    if magic != MAGIC {
        return Err(HelloError::NotTollgate);
    }
    read_into(stream, rest).await?;
    Ok(bytes)
}

async fn read<const N: usize>(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<[u8; N], HelloError> {
    let mut bytes = [0; N];
    read_into(stream, &mut bytes).await?;
    Ok(bytes)
}

async fn read_into(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut [u8],
) -> Result<(), HelloError> {
    match stream.read_exact(bytes).await {
        Ok(_) => Ok(()),
        // Whoever hangs up instead of answering speaks something else.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(HelloError::NotTollgate),
        Err(error) => Err(error.into()),
    }
}

/// 32 bytes that nobody can foresee, so that no proof is of use twice.
fn nonce() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has entropy once it runs");
    bytes
}

const MAGIC: &[u8; 8] = b"tollgate";
/// The versions of the protocol that are spoken here.
pub const VERSION_MIN: u16 = 1;
/// As [`VERSION_MIN`].
pub const VERSION_MAX: u16 = 1;
/// An introduction is four short messages.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of what the one that dials says first, and of what the other does, but for its proof.
const DIAL_BYTES: usize = 44;
const ANSWER_BYTES: usize = 46;
const HELLO_BYTES: usize = 25;
const DIALS: &[u8] = b"tollgate peer dials";
const ANSWERS: &[u8] = b"tollgate peer answers";
const WELCOME: u8 = 0;
const OTHER_SECRET: u8 = 1;
const OTHER_FLEET: u8 = 2;
const NOT_SERVED: u8 = 3;
const OTHER_NODE: u8 = 4;

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    const HELLO: Hello = Hello {
        fleet: 7,
        purpose: Purpose::Peer,
        to: Some(NodeId::new(4)),
        node: Some(NodeId::new(3)),
        start: 9,
    };

    fn host(fleet: u64, node: u32) -> Host {
        Host { fleet, node: Some(NodeId::new(node)) }
    }

    fn met(
        dials: &str,
        answers: &str,
        host: Host,
    ) -> (Result<(u16, Host), HelloError>, Result<Hello, HelloError>) {
        let (dials, answers) =
            (PeerSecret::new(dials.as_bytes()), PeerSecret::new(answers.as_bytes()));
        runtime().block_on(async {
            let (mut dialler, mut answerer) = pair().await;
            // Whoever is done hangs up.
            let dials = async move { introduce(&mut dialler, &dials, &HELLO).await };
            let serves = |purpose| purpose == Purpose::Peer;
            let answers = async move { answer(&mut answerer, &answers, host, serves).await };
            tokio::join!(dials, answers)
        })
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (dialled, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (dialled.expect("connected"), accepted.expect("accepted").0)
    }

    #[test]
    fn two_that_know_the_secret_meet() {
        let (dialled, answered) = met("open sesame", "open sesame", host(7, 4));
        assert_eq!(dialled.expect("welcome"), (1, host(7, 4)));
        assert_eq!(answered.expect("known"), HELLO);
        let (dialled, _) = met("", "", host(0, 4));
        assert_eq!(dialled.expect("welcome"), (1, host(0, 4)));
    }

    #[test]
    fn whoever_has_another_secret_or_fleet_is_refused_by_name() {
        for (dials, answers) in [("a", "b"), ("", "b"), ("a", "")] {
            let (dialled, _) = met(dials, answers, host(7, 4));
            assert!(matches!(dialled, Err(HelloError::Secret)));
        }
        let (dialled, answered) = met("a", "a", host(8, 4));
        assert!(matches!(dialled, Err(HelloError::Fleet { fleet: 8 })));
        assert!(matches!(answered, Err(HelloError::Fleet { fleet: 7 })));
    }

    /// An address that was node 4's is used by node 5, or by a process that has no number yet: what
    /// is meant for node 4 must not reach it, least of all a replica's log.
    #[test]
    fn whoever_is_not_the_node_that_is_meant_refuses() {
        let (dialled, answered) = met("a", "a", host(7, 5));
        let five = Some(NodeId::new(5));
        assert!(matches!(dialled, Err(HelloError::Node { node }) if node == five));
        let error = answered.expect_err("refused").to_string();
        assert_eq!(error, "it is not the node that was meant (4)");
        let (dialled, _) = met("a", "a", Host { fleet: 7, node: None });
        let error = dialled.expect_err("refused").to_string();
        assert_eq!(error, "it has no node's number yet");
    }

    #[test]
    fn garbage_and_other_versions_are_refused_by_name() {
        let mut future = MAGIC.to_vec();
        future.extend([2, 0, 9, 0]);
        future.extend([0; 32]);
        let cases = [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "no member of a tollgate fleet"),
            (future, "it speaks versions 2 to 9"),
        ];
        for (bytes, says) in cases {
            let error = runtime().block_on(async {
                let (mut dialler, mut answerer) = pair().await;
                dialler.write_all(&bytes).await.expect("sent");
                answer(&mut answerer, &PeerSecret::default(), host(7, 4), |_| true).await
            });
            let error = error.expect_err("refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    /// One that speaks versions 1 and 2 dials, and one that does answers.
    #[test]
    fn neighbouring_versions_agree_on_the_highest_that_both_speak() {
        runtime().block_on(async {
            let (mut dialler, mut answerer) = pair().await;
            let secret = PeerSecret::new(b"open sesame");
            let newer = async {
                let mut dials = first(None);
                dials[10..12].copy_from_slice(&[2, 0]);
                dialler.write_all(&dials).await.expect("sent");
                let answers: [u8; ANSWER_BYTES] = read(&mut dialler).await.expect("answered");
                assert_eq!(number(&answers, 8), 1);
                let _: [u8; 32] = read(&mut dialler).await.expect("a proof");
                let mut said = HELLO.encode();
                let proof = secret.proof(DIALS, &[&dials, &answers, &said]);
                said.extend(proof.finalize().into_bytes());
                dialler.write_all(&said).await.expect("sent");
                let [verdict] = read(&mut dialler).await.expect("a verdict");
                assert_eq!(verdict, WELCOME);
            };
            let older = answer(&mut answerer, &secret, host(7, 4), |_| true);
            assert_eq!(tokio::join!(newer, older).1.expect("known"), HELLO);

            let (mut dialler, mut answerer) = pair().await;
            let newer = async {
                let dials: [u8; DIAL_BYTES] = read(&mut answerer).await.expect("dialled");
                assert_eq!([number(&dials, 8), number(&dials, 10)], [VERSION_MIN, VERSION_MAX]);
                let mut answers = first(Some(1));
                answers[12..14].copy_from_slice(&[2, 0]);
                let proof = secret.proof(ANSWERS, &[&dials, &answers]).finalize().into_bytes();
                answerer.write_all(&answers).await.expect("sent");
                answerer.write_all(&proof).await.expect("sent");
                let _: [u8; HELLO_BYTES + 32] = read(&mut answerer).await.expect("a hello");
                let last = [[WELCOME].as_slice(), &[7, 0, 0, 0, 0, 0, 0, 0], &[4, 0, 0, 0]];
                answerer.write_all(&last.concat()).await.expect("sent");
            };
            let older = introduce(&mut dialler, &secret, &HELLO);
            assert_eq!(tokio::join!(newer, older).1.expect("welcome"), (1, host(7, 4)));
        });
    }

    /// `docs/protocol.md` has these.
    #[test]
    fn what_is_said_and_its_proofs_have_the_bytes_that_they_always_had() {
        let said = HELLO.encode();
        let expected = [
            7, 0, 0, 0, 0, 0, 0, 0, 1, // fleet, purpose
            4, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, // to, node, start
        ];
        assert_eq!(said, expected);
        let dials = [&MAGIC[..], &[1, 0, 1, 0], &[0x11; 32]].concat();
        let answers = [&MAGIC[..], &[1, 0, 1, 0, 1, 0], &[0x22; 32]].concat();
        assert_eq!((dials.len(), answers.len()), (DIAL_BYTES, ANSWER_BYTES));
        let secret = PeerSecret::new(b"open sesame");
        let proof = |whose, parts: &[&[u8]]| {
            let bytes = secret.proof(whose, parts).finalize().into_bytes();
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        assert_eq!(
            [proof(ANSWERS, &[&dials, &answers]), proof(DIALS, &[&dials, &answers, &said])],
            [
                "ca2b40e254b3778180e9055cf6ba75b510cc2c560d568c2079fe2d38baf9752d",
                "227ad2ab66831b2ef3697e0b7574b78477f9933e7221fd7fae59899f1e738035",
            ]
        );
    }
}
