//! What is asked: a domain, descriptors of named values, and what each costs.
//!
//! Borrowed from the caller and checked once, here; the limits that apply are not known here.

use std::fmt;

/// The domain of limits and requests that name none.
pub const DEFAULT_DOMAIN: &str = "default";

/// A named value of a descriptor, such as `tenant = acme`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    name: &'a str,
    value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// `name = value`; the value may be any bytes.
    #[inline]
    pub fn new<V: AsRef<[u8]> + ?Sized>(name: &'a str, value: &'a V) -> Self {
        Self { name, value: value.as_ref() }
    }

    /// The entry's name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The entry's value.
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        self.value
    }
}

/// Entries that are limited together, and what they cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor<'a> {
    entries: &'a [Entry<'a>],
    cost: u64,
}

impl<'a> Descriptor<'a> {
    /// These entries at a cost of 1.
    ///
    /// An empty list is met by limits that match everything.
    ///
    /// # Errors
    /// When there are more than 16 entries, a name is empty or given twice, or a value is longer
    /// than 1 MiB. Nothing is spent.
    #[inline]
    pub fn new(entries: &'a [Entry<'a>]) -> Result<Self, RequestError> {
        let descriptor = Self::ordered(entries)?;
        for (index, entry) in entries.iter().enumerate() {
            if entries[..index].iter().any(|earlier| earlier.name == entry.name) {
                return Err(RequestError::NameTwice { index });
            }
        }
        Ok(descriptor)
    }

    /// The same for entries whose order counts, and whose names may come again: what limits with
    /// paths are asked for. To a limit without a path the first of a name counts.
    ///
    /// # Errors
    /// As [`new`](Self::new), but for a name that is given twice.
    #[inline]
    pub fn ordered(entries: &'a [Entry<'a>]) -> Result<Self, RequestError> {
        if entries.len() > ENTRIES_MAX {
            return Err(RequestError::TooManyEntries { entries: entries.len() });
        }
        for (index, entry) in entries.iter().enumerate() {
            if entry.name.is_empty() {
                return Err(RequestError::EmptyName { index });
            }
            if entry.value.len() > VALUE_BYTES_MAX {
                return Err(RequestError::ValueTooLong { index, bytes: entry.value.len() });
            }
        }
        Ok(Self { entries, cost: 1 })
    }

    /// The same entries at another cost, in units; 0 asks without spending.
    #[must_use]
    pub fn with_cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// The entries, in the order given.
    #[must_use]
    pub fn entries(&self) -> &'a [Entry<'a>] {
        self.entries
    }

    /// What the descriptor costs, in units.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The value of the entry with this name.
    #[inline]
    pub(crate) fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| entry.value)
    }
}

/// Descriptors that pass or are denied as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    domain: &'a str,
    descriptors: &'a [Descriptor<'a>],
}

impl<'a> Request<'a> {
    /// These descriptors in the domain `default`.
    #[must_use]
    pub fn new(descriptors: &'a [Descriptor<'a>]) -> Self {
        Self { domain: DEFAULT_DOMAIN, descriptors }
    }

    /// The same descriptors in another domain.
    #[must_use]
    pub fn in_domain(self, domain: &'a str) -> Self {
        Self { domain, ..self }
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> &'a str {
        self.domain
    }

    /// The descriptors, in the order given.
    #[must_use]
    pub fn descriptors(&self) -> &'a [Descriptor<'a>] {
        self.descriptors
    }
}

/// Who asks: a name that was checked, or nobody in particular.
///
/// The undeclared tenant is a variant and no string, so that no tenant can be named into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tenant<'a> {
    /// A declared tenant.
    Named(TenantName<'a>),
    /// The request declared none; it is limited as the key without a tenant.
    Undeclared,
}

/// A tenant's name: 1 to 256 bytes of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TenantName<'a>(&'a str);

impl<'a> Tenant<'a> {
    /// Checks a declared name.
    ///
    /// ```
    /// use tollgate::Tenant;
    /// assert!(Tenant::parse("").is_err());
    /// assert_ne!(Tenant::parse("undeclared")?, Tenant::Undeclared);
    /// # Ok::<(), tollgate::RequestError>(())
    /// ```
    ///
    /// # Errors
    /// When the name is empty or longer than 256 bytes.
    pub fn parse(name: &'a str) -> Result<Self, RequestError> {
        if name.is_empty() || name.len() > TENANT_BYTES_MAX {
            return Err(RequestError::TenantName { bytes: name.len() });
        }
        Ok(Self::Named(TenantName(name)))
    }

    /// The descriptor entry `tenant = name`; the undeclared tenant has none.
    #[must_use]
    pub fn entry(self) -> Option<Entry<'a>> {
        match self {
            Self::Named(TenantName(name)) => Some(Entry::new("tenant", name)),
            Self::Undeclared => None,
        }
    }
}

impl<'a> TenantName<'a> {
    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

/// Why a request was refused before any limit saw it. Nothing was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestError {
    /// A descriptor of more than 16 entries.
    TooManyEntries {
        /// How many it has.
        entries: usize,
    },
    /// An entry without a name.
    EmptyName {
        /// Which entry, from 0.
        index: usize,
    },
    /// An entry whose name an earlier one has.
    NameTwice {
        /// Which entry, from 0.
        index: usize,
    },
    /// A value of more than 1 MiB.
    ValueTooLong {
        /// Which entry, from 0.
        index: usize,
        /// The value's length.
        bytes: usize,
    },
    /// A tenant's name that is empty or longer than 256 bytes.
    TenantName {
        /// The name's length.
        bytes: usize,
    },
    /// A key with another number of parts than the limit has.
    KeyParts {
        /// Parts that were given.
        given: usize,
        /// Parts that the limit has.
        expected: usize,
    },
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooManyEntries { entries } => {
                write!(f, "a descriptor has at most {ENTRIES_MAX} entries, not {entries}")
            }
            Self::EmptyName { index } => write!(f, "entry {index} has no name"),
            Self::NameTwice { index } => write!(f, "entry {index} repeats an earlier name"),
            Self::ValueTooLong { index, bytes } => {
                write!(f, "entry {index} has {bytes} bytes; at most {VALUE_BYTES_MAX} are read")
            }
            Self::TenantName { bytes } => {
                write!(f, "a tenant's name has 1 to {TENANT_BYTES_MAX} bytes, not {bytes}")
            }
            Self::KeyParts { given, expected } => {
                write!(f, "the limit's key has {expected} parts, not {given}")
            }
        }
    }
}

impl std::error::Error for RequestError {}

const ENTRIES_MAX: usize = 16;
const VALUE_BYTES_MAX: usize = 1 << 20;
const TENANT_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_1_to_256_bytes() {
        assert_eq!(Tenant::parse(""), Err(RequestError::TenantName { bytes: 0 }));
        assert!(Tenant::parse(&"a".repeat(256)).is_ok());
        let long = "a".repeat(257);
        assert_eq!(Tenant::parse(&long), Err(RequestError::TenantName { bytes: 257 }));
    }

    #[test]
    fn only_a_declared_tenant_has_an_entry() {
        let named = Tenant::parse("undeclared").expect("a good name");
        assert_eq!(named.entry(), Some(Entry::new("tenant", "undeclared")));
        assert_eq!(Tenant::Undeclared.entry(), None);
    }

    #[test]
    fn a_bad_descriptor_is_refused_with_the_place_of_its_fault() {
        let entries = [Entry::new("a", "1"), Entry::new("b", "2"), Entry::new("a", "3")];
        assert_eq!(Descriptor::new(&entries), Err(RequestError::NameTwice { index: 2 }));
        let entries = [Entry::new("", "1")];
        assert_eq!(Descriptor::new(&entries), Err(RequestError::EmptyName { index: 0 }));
        let long = vec![0; VALUE_BYTES_MAX + 1];
        let entries = [Entry::new("a", "1"), Entry::new("b", &long)];
        let bytes = VALUE_BYTES_MAX + 1;
        assert_eq!(Descriptor::new(&entries), Err(RequestError::ValueTooLong { index: 1, bytes }));
        let entries = [Entry::new("a", "1"); ENTRIES_MAX + 1];
        let expected = RequestError::TooManyEntries { entries: 17 };
        assert_eq!(Descriptor::new(&entries), Err(expected));
    }
}
