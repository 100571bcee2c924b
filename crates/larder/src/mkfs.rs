//! New file systems, empty or filled from a directory.
//!
//! ```no_run
//! # fn main() -> Result<(), larder::mkfs::MkfsError> {
//! use larder::mkfs::{MkfsOptions, mkfs};
//!
//! let options = MkfsOptions { byte_count: Some(1 << 30), ..MkfsOptions::default() };
//! mkfs(&["disk.img".into()], &options)?;
//! # Ok(())
//! # }
//! ```

pub use larder_mkfs::{
    Claimed, DeviceSummary, FeatureChoice, Features, GroupSummary, InodeFlagsSpec, MkfsError,
    MkfsOptions, Owner, Progress, SubvolumeSpec, Summary, mkfs, mkfs_on, parse_checksum,
    parse_profile,
};
