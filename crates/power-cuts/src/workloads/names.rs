//! The files and directories of a workload.

use std::fmt::{self, Display};

/// A path from the root, which is empty itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(&'static str);

impl Name {
    pub(super) const ROOT: Self = Self("");
    pub(super) const A: Self = Self("A");
    pub(super) const B: Self = Self("B");
    pub(super) const S: Self = Self("S");
    pub(super) const T: Self = Self("T");
    /// Files in the subvolume S.
    pub(super) const FILES_OF_S: [Self; 2] = [Self("S/foo"), Self("S/bar")];
    /// The files that operations begin with.
    pub(super) const FIRST_FILES: [Self; 2] = [Self("foo"), Self("A/foo")];
    /// Those that they may lead to.
    pub(super) const SECOND_FILES: [Self; 2] = [Self("bar"), Self("A/bar")];

    /// The path from the root.
    pub fn path(self) -> &'static str {
        self.0
    }

    pub(super) fn files() -> impl Iterator<Item = Self> {
        Self::FIRST_FILES.into_iter().chain(Self::SECOND_FILES)
    }

    pub(super) fn is_directory(self) -> bool {
        matches!(self, Self::ROOT | Self::A | Self::B) || self.is_subvolume()
    }

    pub(super) fn is_subvolume(self) -> bool {
        matches!(self, Self::S | Self::T)
    }

    /// The other file of the same directory, or the other directory.
    pub(super) fn sibling(self) -> Self {
        Self(match self.0 {
            "foo" => "bar",
            "bar" => "foo",
            "A/foo" => "A/bar",
            "A/bar" => "A/foo",
            "S/foo" => "S/bar",
            "S/bar" => "S/foo",
            "A" => "B",
            "B" => "A",
            "S" => "T",
            "T" => "S",
            _ => "",
        })
    }

    pub(super) fn parent(self) -> Self {
        match self.0.split_once('/') {
            Some(("A", _)) => Self::A,
            Some(("S", _)) => Self::S,
            _ => Self::ROOT,
        }
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::ROOT { "/" } else { self.0 })
    }
}
