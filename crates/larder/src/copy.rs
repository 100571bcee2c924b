//! Copies of trees of files: from this system into a file system, out of it, and within it; and what
//! is in tar archives.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::ops::ControlFlow;
//!
//! use larder::copy::{CopyOptions, Event, Source};
//!
//! # let folder = std::env::temp_dir().join(format!("larder-copy-{}", std::process::id()));
//! # std::fs::create_dir_all(folder.join("notes"))?;
//! # std::fs::write(folder.join("notes/today.txt"), "bread, butter")?;
//! # let image = folder.join("disk.img");
//! # let options = larder::mkfs::MkfsOptions { byte_count: Some(256 << 20), ..Default::default() };
//! # larder::mkfs::mkfs(&[image.clone()], &options)?;
//! let fs = larder::OpenOptions::new().write(true).open([&image])?;
//! let root = fs.subvolume("/")?;
//!
//! // With modes, owners, times, extended attributes, ACLs, holes and hard links.
//! let copied = CopyOptions::new().copy_in(folder.join("notes"), &root, "notes")?;
//! assert_eq!((copied.inodes, copied.bytes), (2, 13));
//!
//! // The copy goes on after failures, and fails in the end.
//! let report = |event: Event<'_>| {
//!     if let Event::Failed(error) = event {
//!         eprintln!("{error}");
//!     }
//!     ControlFlow::Continue(())
//! };
//! CopyOptions::new().observe(report).copy_out(&root, "notes", folder.join("again"))?;
//! assert_eq!(std::fs::read_to_string(folder.join("again/today.txt"))?, "bread, butter");
//!
//! # std::fs::write(folder.join("photos.tar"), [0; 1024])?;
//! let archive = std::io::BufReader::new(std::fs::File::open(folder.join("photos.tar"))?);
//! CopyOptions::new().unpack(archive, &root, "notes")?;
//! fs.sync()?; // all of it is durable
//!
//! // Any source goes to any destination: here an archive to a folder of this system.
//! let mut archive = std::io::BufReader::new(std::fs::File::open(folder.join("photos.tar"))?);
//! let mut place = larder::copy::OntoHost::below(&folder)?;
//! CopyOptions::new().copy(Source::Archive(&mut archive), &mut place, "again")?;
//! # drop((root, fs));
//! # std::fs::remove_dir_all(folder)?;
//! # Ok(())
//! # }
//! ```

pub use larder_copy::{
    Copied, CopyError, CopyOptions, Destination, Event, IntoImage, Keep, OntoHost, Source,
};
pub use larder_format::{IdMap, IdMapError, IdRange, OwnerMap};
