//! Changing attributes.

use larder_format::item::{InodeFlags, Timespec};
use larder_transaction::space::Priority;

use super::apply;
use super::node::Locked;
use crate::error::{Error, Result};
use crate::inode::{FileType, Inode, Timestamp};

/// The inode.
const ITEMS: u64 = 1;
/// The bits of a mode that are not its type.
const PERMISSIONS: u32 = 0o7777;
/// Flags that can be set and cleared.
const CHANGEABLE: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::NOCOMPRESS)
    .union(InodeFlags::NODATACOW);

/// Attributes to be changed; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions with setuid, setgid and sticky.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode: now, if it is not set.
    pub ctime: Option<Timestamp>,
    /// Creation.
    pub otime: Option<Timestamp>,
    /// All of the flags that can be changed. NODATACOW can be changed of empty files and of
    /// directories, and brings NODATASUM to files.
    pub flags: Option<InodeFlags>,
}

impl Inode {
    /// Changes attributes. An inode that is immutable or append-only has only its flags changed.
    ///
    /// # Errors
    /// `EINVAL` for times that are none and for flags that cannot be changed or exclude each other,
    /// `EPERM`, `EROFS`, `ENOSPC`.
    pub fn set_attributes(&self, new: &SetAttributes) -> Result<()> {
        let (writer, node) = (self.writer()?, self.node()?);
        let times = [new.atime, new.mtime, new.ctime, new.otime];
        let is_time = |time: &Timestamp| time.nanoseconds < 1_000_000_000;
        if !times.iter().flatten().all(is_time) {
            return Err(Error::Invalid("a second has 1,000,000,000 nanoseconds"));
        }
        let handle = writer.join(self.subvolume(), ITEMS, Priority::Normal)?;
        let mut locked = Locked::new([node]);
        let state = locked.of(node);
        let before = state.item.flags();
        let only_flags = SetAttributes { flags: new.flags, ..SetAttributes::default() };
        let is_protected = before.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        if is_protected && *new != only_flags {
            return Err(Error::NotPermitted("it is immutable or can only grow"));
        }
        let flags = new.flags.map(|flags| self.flags_after(before, flags, state.size_bytes));
        let flags = flags.transpose()?;
        let item = &mut state.item;
        if let Some(flags) = flags {
            item.flags = flags.bits().into();
        }
        if let Some(permissions) = new.permissions {
            item.mode = (item.mode.get() & !PERMISSIONS | permissions & PERMISSIONS).into();
        }
        new.uid.inspect(|uid| item.uid = (*uid).into());
        new.gid.inspect(|gid| item.gid = (*gid).into());
        state.touch(handle.generation(), false);
        let item = &mut state.item;
        let places =
            [&mut item.atime, &mut item.mtime, &mut item.ctime, &mut item.otime].into_iter();
        for (place, time) in places.zip(times) {
            if let Some(time) = time {
                *place = Timespec::new(time.seconds, time.nanoseconds);
            }
        }
        apply(&handle, || node.put_item(state))?;
        drop(locked);
        Ok(handle.end()?)
    }

    fn flags_after(
        &self,
        before: InodeFlags,
        wanted: InodeFlags,
        size_bytes: u64,
    ) -> Result<InodeFlags> {
        if !CHANGEABLE.contains(wanted) {
            return Err(Error::Invalid("flags that cannot be changed"));
        }
        let excluded = InodeFlags::NOCOMPRESS | InodeFlags::NODATACOW;
        if wanted.contains(InodeFlags::COMPRESS) && wanted.intersects(excluded) {
            return Err(Error::Invalid("flags that exclude each other"));
        }
        let mut after = before & !CHANGEABLE | wanted;
        let changes_copying = (before ^ wanted).contains(InodeFlags::NODATACOW);
        if changes_copying && self.file_type() == FileType::Regular {
            if size_bytes > 0 {
                return Err(Error::Invalid("it has data"));
            }
            after.set(InodeFlags::NODATASUM, wanted.contains(InodeFlags::NODATACOW));
        }
        Ok(after)
    }
}
