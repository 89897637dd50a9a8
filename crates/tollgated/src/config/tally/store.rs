//! The text of a store: the URLs of one Redis, with a password perhaps.

use std::fmt;

use tollgate_redis::StoreOptions;

/// One store, as it is written: a URL, or several of one cluster or of a primary and its replicas
/// with commas between them. It is never shown with its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoreText(String);

impl StoreText {
    /// # Errors
    /// What is wrong, without a word of the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let urls: Vec<&str> = text.split(',').collect();
        StoreOptions::from_urls(&urls).map_err(|error| error.to_string())?;
        Ok(Self(text.into()))
    }

    /// Its URLs, with their password.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &str> {
        self.0.split(',')
    }
}

/// Without user and password.
impl fmt::Display for StoreText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, url) in self.urls().enumerate() {
            let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
            let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
            write!(f, "{}{scheme}://{address}", if place > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for StoreText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_shown_without_its_password() {
        let text = "rediss://app:se%2Fsame@10.0.0.1:6380/2,rediss://b";
        let store = StoreText::parse(text).expect("a store");
        let shown = "rediss://10.0.0.1:6380/2,rediss://b";
        assert_eq!((store.to_string(), format!("{store:?}")), (shown.into(), shown.into()));
        assert_eq!(store.urls().collect::<Vec<_>>(), text.split(',').collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_url_is_told_without_being_shown() {
        for text in ["", "sesame@host", "redis://a,:sesame@b", "redis://:sesame@a:x"] {
            let why = StoreText::parse(text).expect_err("no store");
            assert!(why.contains("URL") && !why.contains("sesame"), "{why}");
        }
    }
}
