//! What is wrong, as values: what was found, and what was expected. A message is the text of one.
//!
//! Each chapter of the checker has an enum. Together with the [`Location`](crate::Location) of its
//! finding, which names tree, key, block and device, a value says all that a repair needs to know.

/// Defines the enum of a chapter: for each variant its kind, its fields, and its text.
macro_rules! evidence {
    ($(#[$doc:meta])* $name:ident {
        $($kind:expr => $variant:ident $({ $($field:ident: $type:ty),+ })?
            $text:literal $(, $argument:expr)*;)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the text of a variant says what its fields are")]
        pub enum $name {
            $(#[doc = $text] $variant $({ $($field: $type),+ })?,)*
        }

        impl $name {
            /// The kind of finding that this is.
            #[allow(unused_variables, reason = "few kinds depend on a field")]
            pub fn kind(&self) -> crate::report::Kind {
                use crate::report::Kind::*;
                match self { $(Self::$variant $({ $($field),+ })? => $kind,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant $({ $($field),+ })? => write!(f, $text $(, $argument)*),)*
                }
            }
        }
    };
}

mod block;
mod checksum;
mod extent;
mod file;
mod inode;
mod item;
mod log;
mod quota;
mod space;
mod subvolume;
mod superblock;
mod tree;

use std::fmt;

pub use block::BlockEvidence;
pub use checksum::ChecksumEvidence;
pub use extent::ExtentEvidence;
pub use file::FileEvidence;
pub use inode::InodeEvidence;
pub use item::ItemEvidence;
pub use log::LogEvidence;
pub use quota::{QuotaEvidence, QuotaGroupId};
pub use space::SpaceEvidence;
pub use subvolume::SubvolumeEvidence;
pub use superblock::SuperblockEvidence;
pub use tree::TreeEvidence;

use crate::report::Kind;

/// Passes on what the chapters have in common.
macro_rules! chapters {
    ($($(#[$doc:meta])* $variant:ident($chapter:ident),)*) => {
        /// What is wrong, by chapter of the checker. Its text is the message of a finding.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Evidence {
            $($(#[$doc])* $variant($chapter),)*
        }

        impl Evidence {
            /// The kind of finding that this is.
            pub fn kind(&self) -> Kind {
                match self { $(Self::$variant(evidence) => evidence.kind(),)* }
            }
        }

        impl fmt::Display for Evidence {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$variant(evidence) => evidence.fmt(f),)* }
            }
        }

        $(impl From<$chapter> for Evidence {
            fn from(evidence: $chapter) -> Self {
                Self::$variant(evidence)
            }
        })*
    };
}

chapters! {
    /// Of superblocks.
    Superblock(SuperblockEvidence),
    /// Of tree blocks.
    Block(BlockEvidence),
    /// Of trees as a whole, and their root items.
    Tree(TreeEvidence),
    /// Of items by themselves.
    Item(ItemEvidence),
    /// Of devices, chunks, block groups and free space.
    Space(SpaceEvidence),
    /// Of extents and references to them.
    Extent(ExtentEvidence),
    /// Of inodes and directories.
    Inode(InodeEvidence),
    /// Of the content of files.
    File(FileEvidence),
    /// Of checksums, data and parity.
    Checksum(ChecksumEvidence),
    /// Of subvolumes.
    Subvolume(SubvolumeEvidence),
    /// Of quotas.
    Quota(QuotaEvidence),
    /// Of logs.
    Log(LogEvidence),
}
