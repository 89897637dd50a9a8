//! Colour, where a person looks on: a terminal, and no `NO_COLOR`.

use std::io::{IsTerminal, stderr, stdout};

/// Paints words, or leaves them as they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    colours: bool,
}

impl Paint {
    /// No colours.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self { colours: false };

    pub(crate) fn of_stdout() -> Self {
        Self { colours: stdout().is_terminal() && wanted() }
    }

    pub(crate) fn of_stderr() -> Self {
        Self { colours: stderr().is_terminal() && wanted() }
    }

    /// Whether what goes to stderr may have colours.
    pub(crate) fn is_for_stderr() -> bool {
        Self::of_stderr().colours
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() }
    }
}

fn wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
