//! Where a store is, and how long it may take. What the options say is checked once, by
//! [`StoreOptions::check`]; how they are written as URLs is for module `url`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where a store is and how it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// Its servers; of a cluster some of them are enough. With [`Topology::Sentinel`] they are the
    /// sentinels. Earlier ones are preferred: of two that say they are primary, the first is.
    pub addresses: Vec<Address>,
    /// What the addresses are of.
    pub topology: Topology,
    /// The ACL user; `None` is the server's default user.
    pub username: Option<String>,
    /// The password of the user.
    pub password: Option<Password>,
    /// The database; a cluster has only 0.
    pub database: u32,
    /// TLS; `None` is plain TCP.
    pub tls: Option<Tls>,
    /// How long finding the server and greeting it may take, all in all. Typically 500 ms.
    pub connect_timeout: Duration,
    /// How long a read may take; typically 250 ms.
    pub read_timeout: Duration,
    /// How long a write may take; typically 250 ms.
    pub write_timeout: Duration,
    /// How often a server that is down is tried, and a primary is looked for. Typically 1 s.
    pub reconnect_interval: Duration,
    /// Calls under way at once, which is also the number of connections to a server; typically 4.
    /// Others wait for their turn for half of their timeout.
    pub commands_max: usize,
}

/// What a store's addresses are of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Topology {
    /// One server, or a primary and its replicas.
    #[default]
    Replicated,
    /// Sentinels, which know where the primary is; they have TLS if it has.
    Sentinel {
        /// What they call the primary.
        service: String,
        /// The ACL user at the sentinels.
        username: Option<String>,
        /// The password at the sentinels.
        password: Option<Password>,
    },
    /// Nodes of a cluster.
    Cluster,
}

/// How a store is reached by TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Who vouches for the servers, as PEM; `None` is whom the system trusts.
    pub ca_file: Option<PathBuf>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host's name or IP address, without brackets, and a port.
    Tcp {
        /// The name or IP address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// A password, which is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

/// Why options are no store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// There is no address.
    NoAddress,
    /// There are more than 16 addresses.
    TooManyAddresses(usize),
    /// A URL does not begin with `redis://`, `rediss://` or `unix://`, or with one of the first two
    /// with `+cluster` or `+sentinel` in it.
    Scheme {
        /// Which URL, from 1.
        place: usize,
    },
    /// A part of a URL is not what it should be.
    Part {
        /// Which URL, from 1.
        place: usize,
        /// Which part.
        part: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A URL says something else than one before.
    Disagrees {
        /// Which URL, from 1.
        place: usize,
        /// In what.
        part: &'static str,
    },
    /// There is a user without a password.
    NoPassword,
    /// A cluster has no databases other than 0, and its nodes no Unix sockets.
    NotForClusters(&'static str),
    /// A Unix socket has no TLS.
    TlsBySocket,
    /// A duration or a number that must not be 0 is.
    Zero(&'static str),
    /// The file that says who vouches for the servers can't be used.
    CaFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The system trusts nobody to vouch for the servers.
    NoRoots(String),
}

impl StoreOptions {
    /// One primary, or a primary and its replicas, with all else as it typically is.
    #[must_use]
    pub fn new(addresses: Vec<Address>) -> Self {
        Self {
            addresses,
            topology: Topology::Replicated,
            username: None,
            password: None,
            database: 0,
            tls: None,
            connect_timeout: Duration::from_millis(500),
            read_timeout: Duration::from_millis(250),
            write_timeout: Duration::from_millis(250),
            reconnect_interval: Duration::from_secs(1),
            commands_max: 4,
        }
    }

    /// Whether a store can be made of them.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.addresses.is_empty() {
            return Err(StoreError::NoAddress);
        }
        if self.addresses.len() > ADDRESSES_MAX {
            return Err(StoreError::TooManyAddresses(self.addresses.len()));
        }
        let is_half = match &self.topology {
            Topology::Sentinel { username, password, .. } => {
                username.is_some() && password.is_none()
            }
            Topology::Replicated | Topology::Cluster => false,
        };
        if is_half || self.username.is_some() && self.password.is_none() {
            return Err(StoreError::NoPassword);
        }
        let has_socket = self.addresses.iter().any(|one| matches!(one, Address::Unix(_)));
        if has_socket && self.tls.is_some() {
            return Err(StoreError::TlsBySocket);
        }
        if self.topology == Topology::Cluster {
            if self.database != 0 {
                return Err(StoreError::NotForClusters("databases other than 0"));
            }
            if has_socket {
                return Err(StoreError::NotForClusters("Unix sockets"));
            }
        }
        let durations = [
            (self.connect_timeout, "connect_timeout"),
            (self.read_timeout, "read_timeout"),
            (self.write_timeout, "write_timeout"),
            (self.reconnect_interval, "reconnect_interval"),
        ];
        if let Some((_, name)) = durations.iter().find(|(duration, _)| duration.is_zero()) {
            return Err(StoreError::Zero(name));
        }
        if self.commands_max == 0 {
            return Err(StoreError::Zero("commands_max"));
        }
        Ok(())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Password {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<String> for Password {
    fn from(password: String) -> Self {
        Self(password)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("a store needs an address"),
            Self::TooManyAddresses(count) => {
                write!(f, "{count} addresses; a store has at most {ADDRESSES_MAX}")
            }
            Self::Scheme { place } => {
                write!(
                    f,
                    "URL {place} does not begin with redis://, rediss:// or unix://, or with \
                     redis+cluster:// or redis+sentinel://"
                )
            }
            Self::Part { place, part, wanted } => {
                write!(f, "the {part} of URL {place} must be {wanted}")
            }
            Self::Disagrees { place, part } => {
                write!(f, "URL {place} has another {part} than one before it")
            }
            Self::NoPassword => f.write_str("a user needs a password"),
            Self::NotForClusters(what) => write!(f, "a cluster has no {what}"),
            Self::TlsBySocket => f.write_str("a Unix socket has no TLS"),
            Self::Zero(name) => write!(f, "{name} must not be 0"),
            Self::CaFile { path, why } => write!(f, "{}: {why}", path.display()),
            Self::NoRoots(why) => write!(f, "the system trusts no certificates: {why}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// No store has more addresses: all of them are tried at once.
pub(crate) const ADDRESSES_MAX: usize = 16;
