//! How a store's addresses and credentials are written as URLs:
//! `redis://user:password@host:port/database`, `rediss://` for TLS, `unix:///path`; with
//! `+cluster` after the scheme for a cluster's nodes, and with `+sentinel` for sentinels, whose
//! path begins with what they call the primary: `redis+sentinel://host:26379/service/database`.
//!
//! No error quotes a URL: it may have a password.

use std::path::PathBuf;

use crate::options::{Address, Password, StoreError, StoreOptions, Tls, Topology};

impl StoreOptions {
    /// The store at these URLs, with all else as it typically is.
    ///
    /// What holds for all of them, user, password, database and TLS, may stand in any; where it
    /// stands in several it must be the same. User and password have `%` and two digits for bytes
    /// such as `@` and `/`; they are the servers', not the sentinels'. The port is 6379 if there is
    /// none, and 26379 of a sentinel.
    ///
    /// ```
    /// use tollgate_redis::StoreOptions;
    /// let urls = ["redis://:s%40fe@10.0.0.1:6380/2", "redis://[::1]"];
    /// let options = StoreOptions::from_urls(&urls)?;
    /// assert_eq!(options.addresses[0].to_string(), "10.0.0.1:6380");
    /// assert_eq!(options.addresses[1].to_string(), "[::1]:6379");
    /// assert_eq!(options.database, 2);
    /// # Ok::<(), tollgate_redis::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Scheme`], [`StoreError::Part`] or [`StoreError::Disagrees`], which tell the
    /// URL by its place, or what no store can be made of.
    pub fn from_urls(urls: &[impl AsRef<str>]) -> Result<Self, StoreError> {
        let mut options = Self::new(Vec::new());
        let mut database = None;
        for (index, url) in urls.iter().enumerate() {
            let place = index + 1;
            let url = parse(url.as_ref().trim(), place)?;
            let tls = url.is_tls.then(Tls::default);
            if index > 0 && (options.tls != tls || options.topology != url.topology) {
                return Err(StoreError::Disagrees { place, part: "scheme or service" });
            }
            (options.tls, options.topology) = (tls, url.topology);
            agree(&mut options.username, url.username, "user", place)?;
            agree(&mut options.password, url.password.map(Password::from), "password", place)?;
            agree(&mut database, url.database, "database", place)?;
            options.addresses.push(url.address);
        }
        options.database = database.unwrap_or(0);
        options.check()?;
        Ok(options)
    }
}

struct Url {
    is_tls: bool,
    topology: Topology,
    username: Option<String>,
    password: Option<String>,
    address: Address,
    database: Option<u32>,
}

fn parse(url: &str, place: usize) -> Result<Url, StoreError> {
    let error = |part, wanted| StoreError::Part { place, part, wanted };
    if url.contains(['?', '#']) {
        return Err(error("end", "the database: options have no place in a URL"));
    }
    let (scheme, rest) = url.split_once("://").ok_or(StoreError::Scheme { place })?;
    let (scheme, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    let (topology, port) = match (scheme, kind) {
        ("redis" | "rediss" | "unix", "") => (Topology::Replicated, "6379"),
        ("redis" | "rediss", "cluster") => (Topology::Cluster, "6379"),
        ("redis" | "rediss", "sentinel") => {
            let (service, username, password) = (String::new(), None, None);
            (Topology::Sentinel { service, username, password }, "26379")
        }
        _ => return Err(StoreError::Scheme { place }),
    };
    let plain = Url {
        is_tls: scheme == "rediss",
        topology,
        username: None,
        password: None,
        address: Address::Unix(PathBuf::new()),
        database: None,
    };
    if scheme == "unix" {
        if !rest.starts_with('/') {
            return Err(error("path", "absolute"));
        }
        return Ok(Url { address: Address::Unix(rest.into()), ..plain });
    }
    // A password may have an `@` that nobody wrote as `%40`, and a host never has one.
    let (both, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let wrong = || error("user or password", "UTF-8, with % only before two digits");
    let (username, password) = credentials(both).ok_or_else(wrong)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (topology, path) = match plain.topology.clone() {
        Topology::Sentinel { username, password, .. } => {
            let (service, path) = path.split_once('/').unwrap_or((path, ""));
            if service.is_empty() {
                return Err(error("path", "what the sentinels call the primary"));
            }
            (Topology::Sentinel { service: service.to_owned(), username, password }, path)
        }
        topology => (topology, path),
    };
    let database = match path {
        "" => None,
        path => Some(path.parse().map_err(|_| error("database", "a number"))?),
    };
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, port),
        Some((host, port)) => (host, port.strip_prefix(':').unwrap_or("")),
        None => authority.rsplit_once(':').unwrap_or((authority, port)),
    };
    let is_bare_v6 = host.contains(':') && !authority.starts_with('[');
    if host.is_empty() || is_bare_v6 || host.contains(['[', ']', ' ']) {
        return Err(error("host", "a name or an IP address, one of version 6 in brackets"));
    }
    let port = port.parse().ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| error("port", "from 1 to 65535"))?;
    let given = |text: String| (!text.is_empty()).then_some(text);
    Ok(Url {
        username: given(username),
        password: given(password),
        address: Address::Tcp { host: host.to_owned(), port },
        database,
        topology,
        ..plain
    })
}

/// User and password; what is missing is empty.
fn credentials(both: &str) -> Option<(String, String)> {
    let (username, password) = both.split_once(':').unwrap_or((both, ""));
    Some((decode(username)?, decode(password)?))
}

/// What several URLs say of all.
fn agree<T: PartialEq>(
    all: &mut Option<T>,
    one: Option<T>,
    part: &'static str,
    place: usize,
) -> Result<(), StoreError> {
    match (&all, one) {
        (_, None) => Ok(()),
        (None, one) => {
            *all = one;
            Ok(())
        }
        (Some(before), Some(one)) if *before == one => Ok(()),
        (Some(_), Some(_)) => Err(StoreError::Disagrees { place, part }),
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = after.get(..2)?;
            let value = |digit: u8| char::from(digit).to_digit(16);
            let byte = value(digits[0])? * 16 + value(digits[1])?;
            bytes.push(u8::try_from(byte).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(urls: &[&str]) -> String {
        StoreOptions::from_urls(urls).expect_err("an error").to_string()
    }

    #[test]
    fn what_holds_for_all_urls_may_stand_in_any() {
        let urls = ["rediss://a", "rediss://app:p%2Fw%40x%3A@b:1/", "rediss://[fe80::1]:2/3"];
        let options = StoreOptions::from_urls(&urls).expect("a store");
        let shown: Vec<String> = options.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a:6379", "b:1", "[fe80::1]:2"]);
        assert_eq!(options.username.as_deref(), Some("app"));
        assert_eq!(options.password, Some(Password::from("p/w@x:".to_owned())));
        assert_eq!((options.database, options.tls), (3, Some(Tls::default())));
        let socket = StoreOptions::from_urls(&["unix:///run/redis.sock"]).expect("a store");
        assert_eq!(socket.addresses, [Address::Unix("/run/redis.sock".into())]);
    }

    #[test]
    fn a_scheme_says_what_the_addresses_are_of() {
        let cluster = StoreOptions::from_urls(&["rediss+cluster://a", "rediss+cluster://b:7"]);
        let cluster = cluster.expect("a store");
        assert_eq!((cluster.topology, cluster.tls.is_some()), (Topology::Cluster, true));
        let urls = ["redis+sentinel://app:p@a/main/2", "redis+sentinel://b:7/main"];
        let options = StoreOptions::from_urls(&urls).expect("a store");
        let shown: Vec<String> = options.addresses.iter().map(ToString::to_string).collect();
        assert_eq!((shown, options.database), (vec!["a:26379".into(), "b:7".into()], 2));
        let (service, username, password) = ("main".to_owned(), None, None);
        assert_eq!(options.topology, Topology::Sentinel { service, username, password });
    }

    #[test]
    fn an_error_names_the_url_and_what_is_wrong_with_it_and_no_password() {
        let ipv6 = "a name or an IP address, one of version 6 in brackets";
        let scheme = "URL 1 does not begin with redis://, rediss:// or unix://, or with \
                      redis+cluster:// or redis+sentinel://";
        for (urls, wanted) in [
            (&["http://:sesame@a"][..], scheme),
            (&["sesame"], scheme),
            (&["unix+cluster:///sesame"], scheme),
            (
                &["redis+sentinel://a"],
                "the path of URL 1 must be what the sentinels call the primary",
            ),
            (&["redis+cluster://a/1"], "a cluster has no databases other than 0"),
            (&["redis://:sesame@"], &format!("the host of URL 1 must be {ipv6}")),
            (&["redis://:sesame@::1"], &format!("the host of URL 1 must be {ipv6}")),
            (&["redis://a", "redis://:sesame@b:0"], "the port of URL 2 must be from 1 to 65535"),
            (&["redis://[::1]6379"], "the port of URL 1 must be from 1 to 65535"),
            (&["redis://:sesame@a/sesame"], "the database of URL 1 must be a number"),
            (
                &["redis://:sesame%@a"],
                "the user or password of URL 1 must be UTF-8, with % only before two digits",
            ),
            (
                &["redis://:sesame@a/0?timeout=1"],
                "the end of URL 1 must be the database: options have no place in a URL",
            ),
            (&["unix://run/redis.sock"], "the path of URL 1 must be absolute"),
            (
                &["redis://:sesame@a", "rediss://b"],
                "URL 2 has another scheme or service than one before it",
            ),
            (
                &["redis+sentinel://a/one", "redis+sentinel://b/two"],
                "URL 2 has another scheme or service than one before it",
            ),
            (
                &["redis://:sesame@a", "redis://:other@b"],
                "URL 2 has another password than one before it",
            ),
            (&["redis://sesame@a"], "a user needs a password"),
            (&[], "a store needs an address"),
        ] {
            let shown = error(urls);
            assert_eq!(shown, wanted);
            assert!(!shown.contains("sesame"));
        }
        assert_eq!(error(&["redis://a"; 17]), "17 addresses; a store has at most 16");
    }

    #[test]
    fn options_do_not_show_their_password() {
        let options = StoreOptions::from_urls(&["redis://:sesame@a"]).expect("a store");
        let shown = format!("{options:?}");
        assert!(shown.contains("Password(..)") && !shown.contains("sesame"), "{shown}");
    }
}
