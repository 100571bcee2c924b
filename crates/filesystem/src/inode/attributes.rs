//! Changing attributes.

use larder_format::item::{InodeFlags, InodeItem, Timespec};

use crate::changed::apply;
use crate::error::{Error, Result};
use crate::handle::inode::Inode;
use crate::inode::flags::{CHANGEABLE, change_flags};
use crate::item::acl;
use crate::item::acl::Acl;
use crate::item::metadata::{FileType, Timestamp, flags_of_ioctl};
use crate::operation::inode_change::{InodeChange, ItemReservation};
use crate::xattr::capability::CAPABILITY;
use crate::xattr::set::XattrChange;

/// The inode and three extended attributes: access ACL, capabilities, compression.
const ITEMS: u64 = 4;
/// The bits of a mode that are not its type.
const PERMISSIONS: u32 = 0o7777;
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o0010;

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions with setuid, setgid and sticky. An access ACL follows: the group bits set its
    /// mask.
    pub permissions: Option<u32>,
    /// Owner. Unless `permissions` are given too, a change of owner or group does what
    /// [`drop_privileges`](Inode::drop_privileges) does, except to directories.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode. By default it becomes now.
    pub ctime: Option<Timestamp>,
    /// Creation.
    pub otime: Option<Timestamp>,
    /// All flags that can be changed. Flags without a meaning for the type of inode are ignored,
    /// and so is a change of NODATACOW, and of NODATASUM with it, for a file with data. COMPRESS
    /// sets the compression property to the algorithm of the mount, or to zlib; without the flag
    /// the property is removed.
    pub flags: Option<InodeFlags>,
}

impl SetAttributes {
    /// Refuses invalid times.
    pub(crate) fn check_times(&self) -> Result<()> {
        let times = [self.atime, self.mtime, self.ctime, self.otime];
        let is_time = |time: &Timestamp| time.nanoseconds < 1_000_000_000;
        if times.iter().flatten().all(is_time) {
            return Ok(());
        }
        Err(Error::Invalid("a second has 1,000,000,000 nanoseconds"))
    }

    /// Whether it sets times only, if anything.
    pub(crate) fn are_times(&self) -> bool {
        let Self { atime, mtime, ctime, otime, .. } = *self;
        *self == Self { atime, mtime, ctime, otime, ..Self::default() }
    }

    /// Copies the new attributes into an inode item, except flags.
    pub(crate) fn put(&self, item: &mut InodeItem) {
        if let Some(permissions) = self.permissions {
            item.mode = (item.mode.get() & !PERMISSIONS | permissions & PERMISSIONS).into();
        }
        self.uid.inspect(|uid| item.uid = (*uid).into());
        self.gid.inspect(|gid| item.gid = (*gid).into());
        let places = [&mut item.atime, &mut item.mtime, &mut item.ctime, &mut item.otime];
        let times = [self.atime, self.mtime, self.ctime, self.otime];
        for (place, time) in places.into_iter().zip(times) {
            if let Some(time) = time {
                *place = Timespec::new(time.seconds, time.nanoseconds);
            }
        }
    }
}

impl Inode {
    /// Changes attributes. If an inode is immutable or append-only, only its flags can change.
    ///
    /// # Errors
    /// `EINVAL` for invalid times and for flags that cannot be changed or exclude each other,
    /// `EOPNOTSUPP` for permissions of a symbolic link, `EPERM`, `EROFS`, `ENOSPC`.
    pub fn set_attributes(&self, new: &SetAttributes) -> Result<()> {
        let only_flags = SetAttributes { flags: new.flags, ..SetAttributes::default() };
        let refuses = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        self.change_attributes(new, if *new == only_flags { InodeFlags::empty() } else { refuses })
    }

    /// Sets the flags as `FS_IOC_SETFLAGS` (`chattr`) does, in its numbering: changeable flags that
    /// are not given are cleared. See [`SetAttributes::flags`].
    ///
    /// # Errors
    /// `EOPNOTSUPP` for flags that cannot be changed, and as
    /// [`set_attributes`](Self::set_attributes).
    pub fn set_ioctl_flags(&self, flags: u32) -> Result<()> {
        let flags = flags_of_ioctl(flags).filter(|flags| CHANGEABLE.contains(*flags));
        let flags = Some(flags.ok_or(Error::UnknownFlags)?);
        self.set_attributes(&SetAttributes { flags, ..SetAttributes::default() })
    }

    /// Sets the time of access, that of modification, or both to now. Append-only files allow that.
    ///
    /// # Errors
    /// `EPERM` for an immutable inode, `EROFS`, `ENOSPC`.
    pub fn touch(&self, of_access: bool, of_content: bool) -> Result<()> {
        let now = Timestamp::now();
        let (atime, mtime) = (of_access.then_some(now), of_content.then_some(now));
        let new = SetAttributes { atime, mtime, ..SetAttributes::default() };
        self.change_attributes(&new, InodeFlags::IMMUTABLE)
    }

    /// Changes attributes, unless the inode has one of the flags `refuses`.
    fn change_attributes(&self, new: &SetAttributes, refuses: InodeFlags) -> Result<()> {
        let target = self.changeable()?;
        new.check_times()?;
        if new.permissions.is_some() && self.file_type() == FileType::Symlink {
            return Err(Error::NoPermissions);
        }
        let (mut change, live) = InodeChange::start(target, ItemReservation::changing(ITEMS))?;
        let InodeChange { locked, handle, .. } = &mut change;
        let generation = handle.generation();
        let state = locked.of(live);
        state.check_none_of(refuses)?;
        let mut item = InodeItem { size: state.size_bytes.into(), ..state.item };
        let mut xattrs = Vec::new();
        if let Some(flags) = new.flags {
            xattrs.push(change_flags(self, &mut item, flags, generation)?);
        }
        if let Some(permissions) = new.permissions {
            xattrs.extend(self.acl_after_chmod(permissions, generation)?);
        } else if new.uid.or(new.gid).is_some() && self.file_type() != FileType::Directory {
            xattrs.push(self.without_privileges(&mut item, true, generation)?);
        }
        // Its size follows at writeback.
        state.item = InodeItem { size: state.item.size, ..item };
        state.inherited = None;
        state.touch(generation, false);
        new.put(&mut state.item);
        apply(handle, || {
            xattrs.iter().try_for_each(|change| change.apply(&live))?;
            live.put_item(state)
        })?;
        change.end()
    }

    /// Clears setuid, the setgid bit of a file that its group may execute, and the file's
    /// capabilities.
    ///
    /// POSIX demands this after each write by an unprivileged user. This crate does not know the
    /// user, so that writing removes only capabilities: a caller that serves users calls this. If
    /// its group may not execute the file, the setgid bit goes too, unless the writer
    /// `is_in_group`.
    ///
    /// # Errors
    /// As [`set_attributes`](Self::set_attributes).
    pub fn drop_privileges(&self, is_in_group: bool) -> Result<()> {
        let (mut change, live) =
            InodeChange::start(self.changeable()?, ItemReservation::changing(ITEMS))?;
        let InodeChange { locked, handle, .. } = &mut change;
        let state = locked.of(live);
        let mut item = state.item;
        let capability = self.without_privileges(&mut item, is_in_group, handle.generation())?;
        if item.mode != state.item.mode || !capability.changes_nothing() {
            state.item = item;
            state.touch(handle.generation(), false);
            apply(handle, || {
                capability.apply(&live)?;
                live.put_item(state)
            })?;
        }
        change.end()
    }

    fn without_privileges(
        &self,
        item: &mut InodeItem,
        is_in_group: bool,
        generation: u64,
    ) -> Result<XattrChange> {
        let mode = item.mode.get();
        let is_run_by_group = mode & S_IXGRP != 0;
        let bits = S_ISUID | if is_run_by_group || !is_in_group { S_ISGID } else { 0 };
        item.mode = (mode & !bits).into();
        self.plan_xattr(CAPABILITY, None, generation)
    }

    /// How the access ACL changes with the mode, if there is one.
    fn acl_after_chmod(&self, permissions: u32, generation: u64) -> Result<Option<XattrChange>> {
        let value = match self.xattr_named(acl::ACCESS) {
            Err(Error::NoSuchAttribute) => return Ok(None),
            value => value?,
        };
        let Some(mut acl) = Acl::parse(&value)? else { return Ok(None) };
        acl.set_permissions(permissions);
        self.plan_xattr(acl::ACCESS, Some(&acl.to_bytes()), generation).map(Some)
    }
}
