//! What was to be done, for errors: a command or a change without what it says.

use std::fmt;

use super::command::CommandKind;

/// Something that a receiver or a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A command of a stream.
    Command(CommandKind),
    /// [`Change::Copy`](super::Change::Copy).
    Copy,
    /// Keeping the state of an incomplete subvolume.
    Checkpoint,
}

impl Action {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Command(kind) => kind.name(),
            Self::Copy => "copy",
            Self::Checkpoint => "checkpoint",
        }
    }

    /// Whether it makes the name that its path ends with: if it fails, nothing is there or below.
    pub fn makes_name(self) -> bool {
        use CommandKind::{Link, Mkdir, Mkfifo, Mkfile, Mknod, Mksock, Symlink};
        let Self::Command(kind) = self else { return false };
        matches!(kind, Mkfile | Mkdir | Mknod | Mkfifo | Mksock | Symlink | Link)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_name_is_known_by_its_kind() {
        use CommandKind::{End, Link, Mkdir, Rename, Rmdir, Symlink, Unlink, Write};
        for kind in [Mkdir, Symlink, Link] {
            assert!(Action::Command(kind).makes_name(), "{kind:?}");
        }
        for kind in [Unlink, Rmdir, Rename, Write, End] {
            assert!(!Action::Command(kind).makes_name(), "{kind:?}");
        }
        assert!(!Action::Copy.makes_name());
        assert_eq!(Action::Command(Mkdir).to_string(), "mkdir");
    }
}
