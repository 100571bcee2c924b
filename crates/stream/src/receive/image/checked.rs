//! What a caller has checked of a change before it is applied.
//!
//! # Invariants
//! - A path is looked up again when a change is applied, and may lead elsewhere by then. The change
//!   then fails: it concerns the inodes that were checked, and no others.

use larder_filesystem::Inode;

use crate::receive::error::CommandProblem;
use crate::wire::Original;

/// The inodes that a change may concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Any: nothing restricts the caller, or the change is to no inode that exists.
    Anything,
    /// This one changes, loses its name, or gets a further one.
    Inode(Original),
    /// This one moves, in place of the other, which has the name already.
    Names {
        /// The first.
        moved: Original,
        /// The second.
        replaced: Option<Original>,
    },
}

impl Checked {
    /// The same, if the first inode is `named`.
    pub(super) fn and_is(self, named: Original) -> Result<Self, CommandProblem> {
        match self {
            Self::Anything => Ok(Self::Inode(named)),
            Self::Inode(checked) | Self::Names { moved: checked, .. } if checked == named => {
                Ok(self)
            }
            _ => Err(CommandProblem::Replaced),
        }
    }

    /// Refuses an inode that was not checked.
    pub(super) fn check(self, inode: &Inode) -> Result<(), CommandProblem> {
        let is_it = match self {
            Self::Anything => true,
            Self::Inode(checked) | Self::Names { moved: checked, .. } => checked.is(inode),
        };
        if is_it { Ok(()) } else { Err(CommandProblem::Replaced) }
    }

    /// Refuses to move an inode, or to replace one, that was not checked.
    pub(super) fn check_names(
        self,
        moved: &Inode,
        there: Option<&Inode>,
    ) -> Result<(), CommandProblem> {
        self.check(moved)?;
        match (self, there) {
            (Self::Names { replaced: Some(checked), .. }, Some(there)) if checked.is(there) => {
                Ok(())
            }
            (Self::Names { replaced: None, .. }, None) | (Self::Anything | Self::Inode(_), _) => {
                Ok(())
            }
            _ => Err(CommandProblem::Replaced),
        }
    }
}
