//! What a reader of a damaged file system does without.

use std::str::FromStr;

/// What a reader of a damaged file system does without, as the kernel's mount option `rescue=` says
/// it. What is sound is preferred all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    /// `usebackuproot`: if the roots of the last commit cannot be read, those of an earlier one.
    pub use_backup_root: bool,
    /// `nologreplay`: a log that a crash left is not replayed. Opening for reading never does.
    pub no_log_replay: bool,
    /// `ignorebadroots`: no tree is needed except those of files, and of the items that name a file
    /// one is enough; and no chunk is needed, if devices may be missing.
    pub ignore_bad_roots: bool,
    /// `ignoredatacsums`: data is read although its checksum is wrong or gone.
    pub ignore_data_checksums: bool,
    /// `ignoremetacsums`: tree blocks are read although their checksum is wrong.
    pub ignore_block_checksums: bool,
    /// `ignoresuperflags`: a superblock may have unknown flags, or those of a change that was not
    /// finished.
    pub ignore_super_flags: bool,
}

/// A word that is none of `rescue=`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is none of usebackuproot, nologreplay, ignorebadroots, ignoredatacsums, \
     ignoremetacsums, ignoresuperflags, all"
)]
pub struct UnknownRescue(String);

impl Rescue {
    /// Nothing.
    pub const NONE: Self = Self {
        use_backup_root: false,
        no_log_replay: false,
        ignore_bad_roots: false,
        ignore_data_checksums: false,
        ignore_block_checksums: false,
        ignore_super_flags: false,
    };
    /// Everything.
    pub const ALL: Self = Self {
        use_backup_root: true,
        no_log_replay: true,
        ignore_bad_roots: true,
        ignore_data_checksums: true,
        ignore_block_checksums: true,
        ignore_super_flags: true,
    };

    /// What either does without.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            use_backup_root: self.use_backup_root || other.use_backup_root,
            no_log_replay: self.no_log_replay || other.no_log_replay,
            ignore_bad_roots: self.ignore_bad_roots || other.ignore_bad_roots,
            ignore_data_checksums: self.ignore_data_checksums || other.ignore_data_checksums,
            ignore_block_checksums: self.ignore_block_checksums || other.ignore_block_checksums,
            ignore_super_flags: self.ignore_super_flags || other.ignore_super_flags,
        }
    }

    /// Whether it only makes sense for reading: all except [`use_backup_root`](Self::use_backup_root),
    /// which changes nothing if the last commit is sound.
    pub fn is_for_reading(&self) -> bool {
        Self { use_backup_root: false, ..*self } != Self::NONE
    }
}

impl FromStr for Rescue {
    type Err = UnknownRescue;

    /// Reads the words of the kernel, with colons between them.
    fn from_str(words: &str) -> Result<Self, UnknownRescue> {
        words.split(':').try_fold(Self::NONE, |rescue, word| {
            let none = Self::NONE;
            let one = match word {
                "usebackuproot" => Self { use_backup_root: true, ..none },
                "nologreplay" => Self { no_log_replay: true, ..none },
                "ignorebadroots" | "ibadroots" => Self { ignore_bad_roots: true, ..none },
                "ignoredatacsums" | "idatacsums" => Self { ignore_data_checksums: true, ..none },
                "ignoremetacsums" | "imetacsums" => Self { ignore_block_checksums: true, ..none },
                "ignoresuperflags" | "isuperflags" => Self { ignore_super_flags: true, ..none },
                "all" => Self::ALL,
                _ => return Err(UnknownRescue(word.to_owned())),
            };
            Ok(rescue.or(one))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_add_up() {
        let rescue: Rescue = "ibadroots:ignoredatacsums".parse().unwrap();
        assert!(rescue.ignore_bad_roots && rescue.ignore_data_checksums);
        assert!(!rescue.ignore_block_checksums && rescue.is_for_reading());
        assert_eq!("nologreplay:all".parse(), Ok(Rescue::ALL));
        assert!(!"usebackuproot".parse::<Rescue>().unwrap().is_for_reading());
        for word in ["", "wibble", "all:"] {
            assert!(word.parse::<Rescue>().is_err(), "{word}");
        }
    }
}
