//! Settings of an open file system: its label, its default subvolume, and how files are written.

use std::ffi::OsStr;

use larder_format::feature::IncompatFlags;
use larder_format::item::{DirEntries, DirEntry, DirItemHeader};
use larder_format::superblock::LABEL_SIZE;
use larder_format::{ItemType, Key, name_hash, objectid};
use larder_platform::OsStrExt;
use larder_transaction::space::Priority;
use larder_transaction::{Items, TreeItems};

use crate::changed::apply;
use crate::compression::compress::WriteCompression;
use crate::error::{Error, Result};
use crate::handle::filesystem::Filesystem;
use crate::settings::policy::WritePolicy;

impl Filesystem {
    /// Changes the label: one line of at most 255 bytes. It is durable when this returns.
    ///
    /// # Errors
    /// `EINVAL` for more than 255 bytes, for zero bytes and for line ends; `EROFS`.
    pub fn set_label(&self, label: impl AsRef<OsStr>) -> Result<()> {
        let label = label.as_ref().as_bytes();
        let writer = self.writer()?;
        if label.len() >= LABEL_SIZE {
            return Err(Error::Invalid("a label is at most 255 bytes long"));
        }
        if label.contains(&0) || label.contains(&b'\n') {
            return Err(Error::Invalid("a label is one line without zeros"));
        }
        writer.manager.change_superblock(|superblock| {
            superblock.label = [0; LABEL_SIZE];
            superblock.label[..label.len()].copy_from_slice(label);
        });
        self.sync()
    }

    /// Makes `id` the default subvolume, which a mount shows unless told otherwise. It is durable
    /// when this returns.
    pub fn set_default_subvolume(&self, id: u64) -> Result<()> {
        let writer = self.writer()?;
        let _subvolumes = writer.subvolumes.lock();
        self.subvolume_by_id(id)?;
        let handle = writer.manager.start(1, Priority::Normal)?;
        let directory = writer.manager.superblock().root_dir_objectid.get();
        let key = Key::new(directory, ItemType::DIR_ITEM, name_hash::dir_name(b"default"));
        let mut root_tree = TreeItems::new(writer.manager.trees().root().clone());
        let missing = Error::MissingItem { tree: objectid::ROOT_TREE, key };
        let stored = root_tree.get(key)?.ok_or(missing)?;
        let mut data = Vec::new();
        for entry in DirEntries::new(&stored) {
            let entry = entry.map_err(|problem| Error::item(objectid::ROOT_TREE, key, problem))?;
            let location = Key::new(id, ItemType::ROOT_ITEM, u64::MAX).into();
            let header = DirItemHeader { location, ..*entry.header };
            let header = if entry.name == b"default" { &header } else { entry.header };
            DirEntry { header, ..entry }.write(&mut data);
        }
        apply(&handle, || root_tree.replace(key, &data))?;
        writer.manager.change_superblock(|superblock| {
            let flags = superblock.incompat_flags.get() | IncompatFlags::DEFAULT_SUBVOL.bits();
            superblock.incompat_flags = flags.into();
        });
        handle.end()?;
        self.sync()
    }

    /// Changes how files are written from now on. Flags of existing files stay.
    #[doc(hidden)]
    pub fn set_write_policy(&self, policy: WritePolicy) -> Result<()> {
        *self.writer()?.policy.write() = policy;
        Ok(())
    }

    /// Compresses data at writeback from now on, unless its file says otherwise. `None` compresses
    /// only files that ask for it.
    pub fn set_compression(&self, compression: Option<WriteCompression>) -> Result<()> {
        *self.writer()?.compression.write() = compression;
        Ok(())
    }

    /// Whether each commit discards freed space on devices; `None`: if one wants that, as object
    /// storage does. Fails in a file system that is open for reading.
    #[doc(hidden)]
    pub fn set_discards(&self, discards: Option<bool>) -> Result<()> {
        self.writer()?.manager().space().set_discards(discards);
        Ok(())
    }
}
