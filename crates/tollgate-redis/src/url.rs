//! How a store's addresses and credentials are written as URLs:
//! `redis://user:password@host:port/database`, `rediss://` for TLS, `unix:///path`.
//!
//! No error quotes a URL: it may have a password.

use std::path::PathBuf;

use crate::options::{Address, Password, StoreError, StoreOptions, Tls};

impl StoreOptions {
    /// The store at these URLs, with all else as it typically is.
    ///
    /// What holds for all of them, user, password, database and TLS, may stand in any; where it
    /// stands in several it must be the same. User and password have `%` and two digits for bytes
    /// such as `@` and `/`. The port is 6379 if there is none.
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
            if index > 0 && options.tls != tls {
                return Err(StoreError::Disagrees { place, part: "scheme" });
            }
            options.tls = tls;
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
    let plain = Url {
        is_tls: url.starts_with("rediss://"),
        username: None,
        password: None,
        address: Address::Unix(PathBuf::new()),
        database: None,
    };
    if let Some(path) = url.strip_prefix("unix://") {
        if !path.starts_with('/') {
            return Err(error("path", "absolute"));
        }
        return Ok(Url { address: Address::Unix(path.into()), ..plain });
    }
    let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://"));
    let rest = rest.ok_or(StoreError::Scheme { place })?;
    // A password may have an `@` that nobody wrote as `%40`, and a host never has one.
    let (credentials, rest) = match rest.rsplit_once('@') {
        Some((credentials, rest)) => (Some(credentials), rest),
        None => (None, rest),
    };
    let (username, password) =
        match credentials.map(|both| both.split_once(':').unwrap_or((both, ""))) {
            Some((username, password)) => {
                let wrong = || error("user or password", "UTF-8, with % only before two digits");
                let decoded = |text| decode(text).ok_or_else(wrong);
                (decoded(username)?, decoded(password)?)
            }
            None => (String::new(), String::new()),
        };
    let (authority, database) = match rest.split_once('/') {
        Some((authority, "")) => (authority, None),
        Some((authority, database)) => {
            let number = database.parse().map_err(|_| error("database", "a number"))?;
            (authority, Some(number))
        }
        None => (rest, None),
    };
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, "6379"),
        Some((host, port)) => (host, port.strip_prefix(':').unwrap_or("")),
        None => authority.rsplit_once(':').unwrap_or((authority, "6379")),
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
        ..plain
    })
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
    fn an_error_names_the_url_and_what_is_wrong_with_it_and_no_password() {
        let ipv6 = "a name or an IP address, one of version 6 in brackets";
        let scheme = "URL 1 does not begin with redis://, rediss:// or unix://";
        for (urls, wanted) in [
            (&["http://:sesame@a"][..], scheme),
            (&["sesame"], scheme),
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
            (&["redis://:sesame@a", "rediss://b"], "URL 2 has another scheme than one before it"),
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
