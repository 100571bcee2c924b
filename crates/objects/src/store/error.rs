//! Errors of stores.

use std::error::Error;
use std::fmt;

use larder_platform::errno::in_words;

/// What went wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// No object has that name.
    NotFound,
    /// The condition of the request did not hold, and the store changed nothing.
    Condition,
    /// The store does not allow it, or knows no such user. Keys may be exchanged meanwhile.
    Denied,
    /// There is no room for it.
    Full,
    /// The store cannot do it at all.
    Unsupported,
    /// The object is there, and is not what was written.
    Damaged,
    /// The network, or the server for now: the same request may succeed later.
    Temporary,
    /// Anything else.
    Other,
}

impl Problem {
    /// Whether the same request may succeed later, for a caller to whom the store has said yes
    /// before: what a store refuses then, it refuses for now, or until somebody mends it. The others
    /// are answers about the object.
    pub(crate) fn is_passing(self) -> bool {
        !matches!(self, Self::NotFound | Self::Condition | Self::Damaged)
    }
}

/// A request that failed. The text never holds credentials.
#[derive(Debug)]
pub struct StoreError {
    /// What went wrong.
    pub problem: Problem,
    /// The store's name, with the object's.
    pub object: String,
    /// What the store or the network said.
    pub source: Box<dyn Error + Send + Sync>,
}

impl StoreError {
    pub(crate) fn new(
        problem: Problem,
        store: &str,
        name: &str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { problem, object: format!("{store}/{name}"), source: source.into() }
    }

    /// Whether the store says with it that the object is not what the caller expects.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.problem, Problem::Condition | Problem::NotFound)
    }

    /// The same refusal, of which the condition was not the reason.
    pub(crate) fn into_passing(self) -> Self {
        Self { problem: Problem::Temporary, ..self }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, object, source } = self;
        let source = in_one_line(&in_words(&**source));
        match problem {
            Problem::NotFound => write!(f, "{object}: there is no such object"),
            Problem::Condition => write!(f, "{object}: somebody else created or replaced it"),
            Problem::Denied => write!(f, "{object}: access is denied: {source}"),
            Problem::Full
            | Problem::Unsupported
            | Problem::Damaged
            | Problem::Temporary
            | Problem::Other => write!(f, "{object}: {source}"),
        }
    }
}

/// Servers answer in many lines.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
