//! One connection to a server: made, greeted, and used for one exchange at a time.
//!
//! Whoever uses a connection owns it, and gives up one on which an exchange did not end well. So a
//! reply that comes late can't be taken for another's, however a call ended. It sets no deadlines:
//! its callers do, by dropping what they wait for.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::decoder::{Bounds, Decoder, Reply, put_command};
use crate::health::{FailureKind, Role, shown};
use crate::options::{Address, Password};
use crate::refusal::Refusal;

pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    decoder: Decoder,
}

/// What a server lets in.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Password>,
    pub(crate) database: u32,
    pub(crate) tls: Option<TlsConnector>,
}

/// What a server said of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) role: Role,
    pub(crate) version: String,
    pub(crate) maxmemory: u64,
    pub(crate) may_evict: Option<String>,
}

/// A request and what has come of it so far, which is worth knowing when it ends early.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Vec<u8>,
    /// Replies to come.
    pub(crate) wanted: usize,
    pub(crate) bounds: Bounds,
    /// Bytes of the request that left, or may have; the others never will.
    pub(crate) written: usize,
    pub(crate) replies: Vec<Reply>,
}

/// Why something did not end well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: FailureKind,
    pub(crate) text: String,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection {
    /// Connects to a server that lets in.
    pub(crate) async fn open(address: &Address, access: &Access) -> Result<Self, Failed> {
        let stream = stream(address, access).await.map_err(|error| Failed {
            kind: FailureKind::Connect,
            text: shown(&error.to_string()),
        })?;
        let mut connection = Self { stream, decoder: Decoder::new() };
        if let Some(password) = &access.password {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            // Servers before version 6 know no users.
            words.extend(access.username.as_deref().map(str::as_bytes));
            words.push(password.as_bytes());
            connection.ask(&words, GREETING_BOUNDS).await.map_err(auth_failed)?;
        }
        if access.database != 0 {
            let database = access.database.to_string();
            connection.ask(&[b"SELECT", database.as_bytes()], GREETING_BOUNDS).await?;
        }
        Ok(connection)
    }

    /// Asks a server what it is. That is a round trip: whoever answers is there.
    pub(crate) async fn greet(&mut self) -> Result<Greeting, Failed> {
        let mut request = Vec::new();
        let sections: [&[u8]; 3] = [b"server", b"memory", b"replication"];
        for section in sections {
            put_command(&mut request, &[b"INFO", section]);
        }
        let mut exchange = Exchange::new(request, sections.len(), GREETING_BOUNDS);
        exchange.run(self).await?;
        let mut texts = String::new();
        for reply in exchange.replies {
            texts.push_str(&text(reply)?);
        }
        Ok(Greeting::of(&texts))
    }

    /// One command, one reply.
    pub(crate) async fn ask(&mut self, words: &[&[u8]], bounds: Bounds) -> Result<Reply, Failed> {
        let mut request = Vec::new();
        put_command(&mut request, words);
        let mut exchange = Exchange::new(request, 1, bounds);
        exchange.run(self).await?;
        match exchange.replies.pop() {
            Some(Reply::Error(error)) => Err(Failed::refused(&error)),
            Some(reply) => Ok(reply),
            None => Err(Failed::nonsense()),
        }
    }

    /// Whether nobody has closed it, and nothing came that nobody asked for.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        let Self { stream, decoder } = self;
        if !decoder.is_empty() {
            return false;
        }
        // The runtime looks for what has come since.
        tokio::task::yield_now().await;
        poll_fn(|context| {
            let mut space = [0; 1];
            let mut space = ReadBuf::new(&mut space);
            let read = Pin::new(&mut *stream).poll_read(context, &mut space);
            Poll::Ready(read.is_pending())
        })
        .await
    }
}

impl Exchange {
    pub(crate) fn new(request: Vec<u8>, wanted: usize, bounds: Bounds) -> Self {
        Self { request, wanted, bounds, written: 0, replies: Vec::new() }
    }

    /// Sends the request and takes its replies, both at once: a server may stop to read while
    /// nobody takes what it says. Afterwards the connection is good for another exchange only if
    /// this one ended well.
    pub(crate) async fn run(&mut self, connection: &mut Connection) -> Result<(), Failed> {
        let Self { request, wanted, bounds, written, replies } = self;
        let Connection { stream, decoder } = connection;
        decoder.expect(*bounds);
        let (mut reader, mut writer) = tokio::io::split(stream);
        let write = async {
            while *written < request.len() {
                match writer.write(&request[*written..]).await {
                    Ok(count) if count > 0 => *written += count,
                    failed => {
                        // TLS does not tell how much left before it failed.
                        *written = request.len();
                        return Err(failed.err().unwrap_or(io::ErrorKind::WriteZero.into()));
                    }
                }
            }
            writer.flush().await
        };
        let read = async {
            let mut bytes = vec![0; READ_BYTES];
            loop {
                while let Some(reply) = decoder.next().map_err(|_| Failed::nonsense())? {
                    replies.push(reply);
                }
                if replies.len() >= *wanted {
                    break;
                }
                match reader.read(&mut bytes).await {
                    Ok(0) => return Err(Failed::closed("the server closed the connection")),
                    Ok(count) => decoder.put(&bytes[..count]),
                    Err(error) => return Err(Failed::closed(&error.to_string())),
                }
            }
            if replies.len() == *wanted { Ok(()) } else { Err(Failed::nonsense()) }
        };
        // What can't be written may still have been answered in part, until the end of all replies.
        let (write, read) = tokio::join!(write, read);
        read?;
        write.map_err(|error: io::Error| Failed::closed(&error.to_string()))
    }
}

impl Greeting {
    /// Reads what `INFO` answered; what is missing is taken as most servers have it.
    fn of(text: &str) -> Self {
        let field = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let maxmemory = field("maxmemory").and_then(|number| number.parse().ok()).unwrap_or(0);
        let policy = field("maxmemory_policy").unwrap_or("noeviction");
        let version = field("valkey_version").or_else(|| field("redis_version")).unwrap_or("");
        let is_replica = field("role") == Some("slave");
        Self {
            role: if is_replica { Role::Replica } else { Role::Primary },
            version: shown(version),
            maxmemory,
            may_evict: (maxmemory > 0 && policy != "noeviction").then(|| shown(policy)),
        }
    }
}

impl Failed {
    pub(crate) fn refused(error: &str) -> Self {
        let kind = match Refusal::of(error) {
            Refusal::Auth => FailureKind::Auth,
            _ => FailureKind::Refused,
        };
        Self { kind, text: shown(error) }
    }

    pub(crate) fn nonsense() -> Self {
        let text = "what answered is no Redis server".to_owned();
        Self { kind: FailureKind::Protocol, text }
    }

    pub(crate) fn timed_out() -> Self {
        Self { kind: FailureKind::TimedOut, text: "no answer in time".to_owned() }
    }

    fn closed(text: &str) -> Self {
        Self { kind: FailureKind::Closed, text: shown(text) }
    }
}

async fn stream(address: &Address, access: &Access) -> io::Result<Box<dyn Stream>> {
    let (host, port) = match address {
        Address::Tcp { host, port } => (host.as_str(), *port),
        Address::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
    };
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = &access.tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    Ok(Box::new(tls.connect(name, stream).await?))
}

/// A server may quote in its error what it was sent, so nothing of it is shown but its first word.
fn auth_failed(failed: Failed) -> Failed {
    let is_answer = matches!(failed.kind, FailureKind::Auth | FailureKind::Refused);
    // This one is said before anything was asked.
    if !is_answer || failed.text == "ERR max number of clients reached" {
        return failed;
    }
    let code = failed.text.split(' ').next().unwrap_or("");
    let is_code = code.bytes().all(|byte| byte.is_ascii_uppercase()) && code.len() <= 16;
    let code = if is_code { code } else { "an error" };
    let text = format!("the server did not accept the password: {code}");
    Failed { kind: FailureKind::Auth, text }
}

fn text(reply: Reply) -> Result<String, Failed> {
    match reply {
        Reply::Bytes(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Reply::Error(error) => Err(Failed::refused(&error)),
        Reply::Status(_) | Reply::Integer(_) | Reply::Nothing | Reply::Array(_) => {
            Err(Failed::nonsense())
        }
    }
}

const READ_BYTES: usize = 16 * 1024;

/// What servers say before they are used.
const GREETING_BOUNDS: Bounds = Bounds { elements: 16, string_bytes: 64 * 1024 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_full_and_may_evict_says_so() {
        let info = "# Memory\r\nused_memory:1\r\nmaxmemory:1024\r\n\
            maxmemory_policy:volatile-ttl\r\nrole:slave\r\nredis_version:7.0.15\r\n";
        let wanted = Greeting {
            role: Role::Replica,
            version: "7.0.15".to_owned(),
            maxmemory: 1024,
            may_evict: Some("volatile-ttl".to_owned()),
        };
        assert_eq!(Greeting::of(info), wanted);
        let kept = Greeting::of(&info.replace("volatile-ttl", "noeviction"));
        assert_eq!(kept.may_evict, None);
        let unbounded = Greeting::of(&info.replace("maxmemory:1024", "maxmemory:0"));
        assert_eq!(unbounded.may_evict, None);
    }

    #[test]
    fn what_a_server_says_of_a_password_is_not_shown() {
        for (said, shown) in [
            ("WRONGPASS invalid username-password pair", "WRONGPASS"),
            ("ERR unknown command 'AUTH', with args beginning with: 'sesame' ", "ERR"),
            ("sesame", "an error"),
        ] {
            let failed = auth_failed(Failed::refused(said));
            assert_eq!(failed.kind, FailureKind::Auth);
            assert_eq!(failed.text, format!("the server did not accept the password: {shown}"));
        }
        let full = Failed::refused("ERR max number of clients reached");
        assert_eq!(auth_failed(full.clone()), full);
    }
}
