//! What is in a file system that is not mounted.

use std::cell::{Cell, OnceCell};
use std::ffi::OsString;
use std::rc::Rc;

use larder::accounting::SharedExtents;
use larder::{Extent, ExtentKind, FileType, Filesystem, Inode, SpaceKind, UsedExtent};

use super::summable::{Summable, Used};
use crate::accounted::Accounted;
use crate::interrupt;

/// Something in a file system that is not mounted.
pub struct Unmounted {
    inode: Inode,
    sharing: Rc<Sharing>,
}

/// Finds out which extents are shared: one by one from back references at first, and all at once by
/// reading every tree block once that would have cost less. So a small directory costs little in a
/// large file system, and a large one no more than about twice what it must.
struct Sharing {
    filesystem: Filesystem,
    /// Extents that are still asked for one by one.
    patience: Cell<u64>,
    all: OnceCell<Option<SharedExtents>>,
}

/// Tree blocks that a reading of all of them passes while one extent's references are followed.
const BLOCKS_PER_QUESTION: u64 = 4;

impl Unmounted {
    pub fn new(filesystem: Filesystem, inode: Inode) -> larder::Result<Self> {
        let spaces = filesystem.space()?.into_iter();
        let has_trees = |space: &larder::Space| space.kind != SpaceKind::Data;
        let tree_bytes: u64 = spaces.filter(has_trees).map(|space| space.used_bytes).sum();
        let blocks = tree_bytes / u64::from(filesystem.node_bytes());
        let patience = Cell::new(blocks / BLOCKS_PER_QUESTION);
        let sharing = Sharing { filesystem, patience, all: OnceCell::new() };
        Ok(Self { inode, sharing: Rc::new(sharing) })
    }
}

impl Summable for Unmounted {
    fn id(&self) -> (u64, u64) {
        (self.inode.subvolume_id(), self.inode.number())
    }

    fn is_directory(&self) -> bool {
        self.inode.file_type() == FileType::Directory
    }

    fn is_file(&self) -> bool {
        self.inode.file_type() == FileType::Regular
    }

    fn has_several_names(&self) -> bool {
        self.inode.metadata().nlink > 1
    }

    fn children(&self) -> anyhow::Result<Vec<(OsString, anyhow::Result<Self>)>> {
        let entries = self.inode.clone().into_directory()?.entries()?;
        let child = |entry: larder::Result<larder::Entry>| {
            let entry = entry?;
            let below = |inode| Self { inode, sharing: self.sharing.clone() };
            Ok((entry.name().to_owned(), entry.open().map(below).map_err(Into::into)))
        };
        entries.map(child).collect()
    }

    fn extents(&self, add: &mut dyn FnMut(Used) -> larder::Result<()>) -> anyhow::Result<()> {
        let file = self.inode.clone().into_file()?;
        if let Some(shared) = self.sharing.all()? {
            for extent in file.extents_from(0)? {
                let extent = extent?;
                if let Some((address, len_bytes)) = with_space(&extent) {
                    let is_shared = shared.covers(address)?;
                    add(Used { address, len_bytes, is_shared })?;
                }
            }
            return Ok(());
        }
        for used in UsedExtent::all_from(&file, 0)? {
            let UsedExtent { extent, is_shared } = used?;
            if let Some((address, len_bytes)) = with_space(&extent) {
                self.sharing.patience.set(self.sharing.patience.get().saturating_sub(1));
                add(Used { address, len_bytes, is_shared })?;
            }
        }
        Ok(())
    }
}

/// The address of an extent that has space of its own, and its length.
fn with_space(extent: &Extent) -> Option<(u64, u64)> {
    let has_space = matches!(extent.kind, ExtentKind::Data | ExtentKind::Preallocated);
    has_space.then(|| (extent.logical.unwrap_or(0), extent.len_bytes))
}

impl Sharing {
    /// All shared extents, once they are worth finding.
    fn all(&self) -> anyhow::Result<Option<&SharedExtents>> {
        if self.patience.get() > 0 {
            return Ok(None);
        }
        if self.all.get().is_none() {
            let mut progress = Accounted::new();
            let found = SharedExtents::find(&self.filesystem, &mut |now| progress.observe(now));
            drop(progress);
            interrupt::check()?;
            // Without a temporary file, or with a damaged tree, each extent is asked for.
            let _ = self.all.set(found.unwrap_or_default());
        }
        Ok(self.all.get().and_then(Option::as_ref))
    }
}
