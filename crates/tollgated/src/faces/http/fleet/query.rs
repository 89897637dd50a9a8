//! The query of a URI: names and values, percent-encoded, each once.

use hyper::Uri;

use crate::faces::http::problem::Problem;

/// Names and values in their order.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, Vec<u8>)>);

impl Query {
    /// # Errors
    /// When something is there twice, is no `name=value`, or is not encoded as it should be.
    pub(super) fn of(uri: &Uri) -> Result<Self, Problem> {
        let text = uri.query().unwrap_or("");
        let mut pairs: Vec<(String, Vec<u8>)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let parsed = pair.split_once('=').and_then(|(name, value)| {
                Some((String::from_utf8(decoded(name)?).ok()?, decoded(value)?))
            });
            let shown = || pair.chars().take(64).collect::<String>();
            let Some((name, value)) = parsed else {
                return Err(Problem::invalid(format!("{}: is no name=value", shown())));
            };
            if pairs.len() >= PAIRS_MAX || pairs.iter().any(|(known, _)| *known == name) {
                return Err(Problem::invalid(format!("{}: is there once too often", shown())));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Refuses what is not among these names.
    pub(super) fn allow(&self, names: &[&str]) -> Result<(), Problem> {
        let stray = self.0.iter().find(|(name, _)| !names.contains(&&**name));
        stray.map_or(Ok(()), |(name, _)| {
            let shown: String = name.chars().take(64).collect();
            let known = if names.is_empty() { "nothing".into() } else { names.join(", ") };
            Err(Problem::invalid(format!("{shown}: is no part of the query, which has {known}")))
        })
    }

    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        let value = self.bytes(name).map(std::str::from_utf8).transpose();
        value.map_err(|_| Problem::invalid(format!("{name}: is no UTF-8")))
    }

    pub(super) fn number(
        &self,
        name: &str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        let detail = || format!("{name}: must be a whole number from {least} to {most}");
        number.map(Some).ok_or_else(|| Problem::invalid(detail()))
    }
}

/// What is percent-encoded, with `+` for a space as forms have it.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            b'+' => b' ',
            plain => plain,
        });
    }
    Some(decoded)
}

/// A key has eight parts.
const PAIRS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Result<Query, Problem> {
        Query::of(&format!("/x?{text}").parse().expect("a URI"))
    }

    #[test]
    fn values_are_decoded_and_may_be_any_bytes() {
        let query = query("a=x%20y+z&b=%ff&c=").expect("a query");
        assert_eq!(query.text("a").ok().flatten(), Some("x y z"));
        assert_eq!(query.bytes("b"), Some(&b"\xff"[..]));
        assert!(query.text("b").is_err());
        assert_eq!(query.text("c").ok().flatten(), Some(""));
        assert_eq!(query.text("d").ok().flatten(), None);
    }

    #[test]
    fn what_is_no_query_is_refused() {
        for wrong in ["a", "a=1&a=2", "a=%", "a=%4", "a=%gg", "%ff=1"] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
        let many: String = (0..17).map(|n| format!("a{n}=1&")).collect();
        assert!(query(&many).is_err());
    }

    #[test]
    fn numbers_have_bounds() {
        let query = query("a=7&b=x&c=-1&d=99").expect("a query");
        assert_eq!(query.number("a", 0, 10).ok().flatten(), Some(7));
        for name in ["b", "c", "d"] {
            let problem = query.number(name, 0, 10).expect_err("refused");
            assert!(problem.detail.contains("from 0 to 10"), "{}", problem.detail);
        }
    }
}
