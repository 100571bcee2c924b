//! What a scrub finds.

/// A bad part of a device.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The device.
    pub device: u64,
    /// Where it begins on the device.
    pub physical: u64,
    /// Its logical address; of a superblock none.
    pub logical: Option<u64>,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// What should be there.
    pub subject: Subject,
    /// What is wrong with it.
    pub problem: String,
    /// What became of it.
    pub fate: Fate,
}

/// What should be at an address of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A copy of the superblock.
    Superblock,
    /// A tree block.
    TreeBlock {
        /// The tree that has it, or one of them, if that is known.
        tree: Option<u64>,
    },
    /// Data of files.
    Data,
    /// Parity.
    Parity,
}

/// What became of a bad part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A good copy overwrote it.
    Repaired,
    /// There is a good copy, and the scrub changes nothing.
    Repairable,
    /// There is a good copy, and larder writes no RAID5 and RAID6.
    LeftWithParity,
    /// There is a good copy, but the device cannot be written.
    NotWritten,
    /// There is no good copy.
    BeyondRepair,
    /// It was freed before it could be repaired.
    Freed,
    /// Copies differ, and no checksum tells which one is right.
    Undecided,
}

impl Fate {
    /// In words, after what it is about.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Repaired => "repaired from a good copy",
            Self::Repairable => "left as it is; there is a good copy",
            Self::LeftWithParity => {
                "left as it is, since larder writes no RAID5 and RAID6; the others are enough"
            }
            Self::NotWritten => "it could not be overwritten; there is a good copy",
            Self::BeyondRepair => "beyond repair: there is no good copy",
            Self::Freed => "freed meanwhile",
            Self::Undecided => "left as it is: without a checksum nobody knows which copy is right",
        }
    }
}
