//! Where the space of a file system went: by path, snapshot, compression and block group.
//!
//! ```no_run
//! # fn main() -> Result<(), larder::Error> {
//! use std::ops::ControlFlow;
//!
//! use larder::accounting::Accounting;
//!
//! let fs = larder::OpenOptions::new().open(["disk.img"])?;
//! let accounting = Accounting::of(&fs, &mut |_| ControlFlow::Continue(()))?;
//! for subvolume in &accounting.subvolumes {
//!     println!("{}: {} bytes alone", subvolume.info.id, subvolume.exclusive_bytes);
//! }
//! # Ok(())
//! # }
//! ```

#[doc(hidden)]
pub use larder_accounting::RangeUnion;
#[doc(inline)]
pub use larder_accounting::{
    Accounting, AccountingPhase, AccountingProgress, BlockGroupUse, DataUse, EncodingUse,
    Fragmentation, FragmentedFile, FragmentedFiles, Others, Part, PlaceKind, PlaceUse,
    SharedExtents, StoredAs, SubvolumeState, SubvolumeUse,
};
