//! The doors by name. What is spoken there is known in `faces`.

/// A door, as metrics and logs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    Http,
    Resp,
    Grpc,
}

impl Face {
    pub(crate) const ALL: [Self; 3] = [Self::Http, Self::Resp, Self::Grpc];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Resp => "resp",
            Self::Grpc => "grpc",
        }
    }
}
