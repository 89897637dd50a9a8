//! Where a door is: a TCP address or a Unix socket, as written `127.0.0.1:8080` or `unix:/path`.

use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use socket2::{Domain, Protocol, SockAddr, SockRef, Type};

/// An address to listen at or to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err("a path must follow \"unix:\"".into());
            }
            return Ok(Self::Unix(path.into()));
        }
        let text = text.replace("localhost:", "127.0.0.1:");
        let wanted =
            || "must be an address and a port such as 127.0.0.1:8080, or unix:/path".into();
        text.parse().map(Self::Tcp).map_err(|_| wanted())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Whether only this machine can reach it.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Takes the address; nobody is let in yet. With `shared`, another process may listen at the
    /// same TCP address, so that a successor can start before this one ends.
    pub(crate) fn bind(&self, shared: bool) -> io::Result<Bound> {
        match self {
            Self::Tcp(address) => {
                let domain = Domain::for_address(*address);
                let socket = socket2::Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
                socket.set_reuse_address(true)?;
                socket.set_reuse_port(shared)?;
                socket.set_nonblocking(true)?;
                socket.bind(&(*address).into())?;
                Ok(Bound { socket, file: None })
            }
            Self::Unix(path) => {
                if is_left_behind(path) {
                    std::fs::remove_file(path)?;
                }
                let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
                socket.set_nonblocking(true)?;
                socket.bind(&SockAddr::unix(path)?)?;
                // At once: a socket that nobody listens at looks left behind.
                socket.listen(BACKLOG)?;
                let inode = std::fs::symlink_metadata(path)?.ino();
                Ok(Bound { socket, file: Some(SocketFile { path: path.clone(), inode }) })
            }
        }
    }
}

/// A socket that has its address, and takes nobody yet.
pub(crate) struct Bound {
    socket: socket2::Socket,
    file: Option<SocketFile>,
}

impl Bound {
    /// Listens, within a runtime.
    pub(crate) fn listen(self) -> io::Result<Listener> {
        let Self { socket, file } = self;
        socket.listen(BACKLOG)?;
        Ok(match file {
            None => Listener::Tcp(tokio::net::TcpListener::from_std(socket.into())?),
            Some(file) => {
                let listener = tokio::net::UnixListener::from_std(socket.into())?;
                Listener::Unix { listener, file }
            }
        })
    }
}

/// A Unix socket's file, which goes with it.
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

/// Whether a killed process left this socket: nobody listens there. Any other file is not ours.
fn is_left_behind(path: &Path) -> bool {
    let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

/// A socket that listens.
pub(crate) enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix { listener: tokio::net::UnixListener, file: SocketFile },
}

impl Listener {
    /// Where it listens, the port being known now if it was 0.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix { file, .. } => Ok(Address::Unix(file.path.clone())),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => Ok(Socket::Tcp(listener.accept().await?.0.into_std()?)),
            Self::Unix { listener, .. } => Ok(Socket::Unix(listener.accept().await?.0.into_std()?)),
        }
    }

    /// Stops listening, and returns those who have connected and were not accepted yet: at most as
    /// many as may wait, and closing the listener would cut them off.
    ///
    /// Nobody is to connect between the last look at the queue and its end either. So the system is
    /// made to drop the first packet of a connection, for as short as can be: its repetition, a
    /// second later, finds a successor, or nobody.
    pub(crate) fn end(self) -> Vec<Socket> {
        let mut waiting: Vec<Socket> = self.accept_waiting().collect();
        self.drop_packets();
        waiting.extend(self.accept_waiting());
        waiting
    }

    fn drop_packets(&self) {
        #[cfg(target_os = "linux")]
        if let Self::Tcp(listener) = self {
            const RETURN: u16 = 0x06;
            let none = [socket2::SockFilter::new(RETURN, 0, 0, 0)];
            // Where filters are forbidden, a few are cut off.
            let _ = SockRef::from(listener).attach_filter(&none);
        }
    }

    /// Asks the system: of whom the runtime has not heard yet, [`accept`](Self::accept) does not
    /// know either.
    fn accept_waiting(&self) -> impl Iterator<Item = Socket> {
        std::iter::from_fn(|| self.try_accept().ok()).take(BACKLOG as usize)
    }

    fn try_accept(&self) -> io::Result<Socket> {
        let listener = match self {
            Self::Tcp(listener) => SockRef::from(listener),
            Self::Unix { listener, .. } => SockRef::from(listener),
        };
        let (socket, _) = listener.accept()?;
        socket.set_nonblocking(true)?;
        Ok(match self {
            Self::Tcp(_) => Socket::Tcp(socket.into()),
            Self::Unix { .. } => Socket::Unix(socket.into()),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone already, or another's by now.
        if self.path.symlink_metadata().is_ok_and(|file| file.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A connection that belongs to no runtime yet.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Says a last word if that can be done at once.
    pub(crate) fn say_and_close(self, words: &[u8]) {
        let _ = match self {
            Self::Tcp(mut stream) => stream.write(words),
            Self::Unix(mut stream) => stream.write(words),
        };
    }
}

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_taken_does_not_look_left_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let address = Address::Unix(path.clone());
        let bound = address.bind(false).expect("a free path");
        let other = address.bind(false).map(|_| ()).map_err(|error| error.kind());
        assert_eq!(other, Err(io::ErrorKind::AddrInUse));
        drop(bound);
        assert!(!path.exists());
    }

    #[test]
    fn only_a_socket_that_nobody_listens_at_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, socket) = (folder.path().join("precious"), folder.path().join("socket"));
        std::fs::write(&file, "kept").expect("written");
        assert!(!is_left_behind(&file) && !is_left_behind(&folder.path().join("nothing")));
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a listener");
        assert!(!is_left_behind(&socket));
        drop(listener);
        assert!(is_left_behind(&socket));
    }

    fn listener(runtime: &tokio::runtime::Runtime) -> (Listener, SocketAddr) {
        let _entered = runtime.enter();
        let address: Address = "127.0.0.1:0".parse().expect("an address");
        let listener = address.bind(false).and_then(Bound::listen).expect("a free port");
        let Ok(Address::Tcp(address)) = listener.address() else { panic!("a port") };
        (listener, address)
    }

    #[test]
    fn who_has_connected_unknown_to_the_runtime_is_served_all_the_same() {
        // It is never run, so that it hears of nobody.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let (listener, address) = listener(&runtime.expect("a runtime"));
        let _clients = [(); 2].map(|()| TcpStream::connect(address).expect("a connection"));
        assert_eq!(listener.end().len(), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_listener_that_ends_takes_nobody_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let (listener, address) = listener(&runtime.expect("a runtime"));
        let _waiting = TcpStream::connect(address).expect("a connection");
        listener.drop_packets();
        let late = TcpStream::connect_timeout(&address, std::time::Duration::from_millis(20));
        assert_eq!(late.map_err(|error| error.kind()).err(), Some(io::ErrorKind::TimedOut));
        assert_eq!(listener.end().len(), 1);
    }

    #[test]
    fn an_address_is_read_as_people_write_it() {
        for (text, shown, local) in [
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("localhost:80", "127.0.0.1:80", true),
            ("[::1]:80", "[::1]:80", true),
            ("0.0.0.0:80", "0.0.0.0:80", false),
            ("unix:/run/t.sock", "unix:/run/t.sock", true),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!((address.to_string().as_str(), address.is_local()), (shown, local));
        }
        for wrong in ["", "8080", "unix:", "example.org:80"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
