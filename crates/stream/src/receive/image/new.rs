//! An inode that the stream makes: its attributes and content are gathered until the stream moves
//! on to another.

use std::ffi::OsStr;
use std::mem;
use std::path::Path;

use larder_filesystem::{
    Directory, Error, FileType, Inode, MOST_WHOLE_BYTES, NewInode, RenameMode, SetAttributes,
    WholeInode, XattrMode,
};
use larder_platform::OsStrExt;

use super::attributes::{attributes_of, merged};
use super::names::Names;
use super::original::{self, copy_content};
use crate::receive::error::{CommandError, CommandProblem};
use crate::receive::node::MadeNode;
use crate::wire::{Action, Command, CommandKind, Original};

/// Most extended attributes to gather, and most bytes of them.
const MOST_XATTRS: usize = 16;
const MOST_XATTR_BYTES: usize = 16 << 10;

/// The usual size of a sector: data fills its last one.
const SECTOR_BYTES: usize = 4096;
/// The bits of a mode that are not its type.
const PERMISSIONS: u32 = 0o7777;
/// The permissions that a new owner removes.
const REMOVED_BY_OWNER: u32 = 0o6000;
/// Namespaces of extended attributes without side effects.
const PLAIN: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const REPLACED: &str = "another file has taken the place of the new one meanwhile";
/// The attribute that a new owner removes.
const CAPABILITY: &[u8] = b"security.capability";

/// An inode to create.
#[derive(Debug)]
pub(super) struct NewNode {
    command: CommandKind,
    /// Its path.
    path: Vec<u8>,
    /// Its first path, if it was moved since.
    made_at: Option<Vec<u8>>,
    file_type: FileType,
    new: NewInode,
    attributes: SetAttributes,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Data of a file, or target of a symbolic link.
    content: Vec<u8>,
    /// The file that this one is a copy of, in place of content.
    original: Option<Original>,
}

impl NewNode {
    /// The inode that `command` makes, if it makes one. It belongs to `owner`, a user and a group.
    pub(super) fn of(
        command: &Command<'_>,
        (uid, gid): (u32, u32),
    ) -> Result<Option<Self>, CommandProblem> {
        let Some(made) = MadeNode::of(command)? else { return Ok(None) };
        let mode = type_bits(made.file_type) | made.permissions;
        Ok(Some(Self {
            command: command.kind(),
            path: made.path.to_vec(),
            made_at: None,
            file_type: made.file_type,
            new: NewInode { mode, uid, gid, umask: 0, device: made.device },
            attributes: SetAttributes::default(),
            xattrs: Vec::new(),
            content: made.target.to_vec(),
            original: None,
        }))
    }

    /// Its path.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Adds the changes of a command to this inode; whether it could.
    pub(super) fn absorb(&mut self, command: &Command<'_>) -> bool {
        if command.path() != Some(&*self.path) {
            return false;
        }
        if let Some((_, attributes)) = attributes_of(command) {
            // The file system refuses permissions of a symbolic link.
            let is_refused =
                attributes.permissions.is_some() && self.file_type == FileType::Symlink;
            return !is_refused && self.set_attributes(&attributes);
        }
        let is_file = self.file_type == FileType::Regular && self.original.is_none();
        match *command {
            Command::Rename { to, .. } => {
                let path = mem::replace(&mut self.path, to.to_vec());
                self.made_at.get_or_insert(path);
                true
            }
            Command::SetXattr { name, data, .. } => self.set_xattr(name, data),
            Command::Write { offset, data, .. } if is_file => {
                let has_room = self.content.len() + data.len() <= MOST_WHOLE_BYTES;
                let follows = offset == self.content.len() as u64;
                if has_room && follows {
                    if self.content.is_empty() {
                        self.content.reserve_exact(data.len().next_multiple_of(SECTOR_BYTES));
                    }
                    self.content.extend_from_slice(data);
                }
                has_room && follows
            }
            Command::Truncate { size, .. } if is_file => size == self.content.len() as u64,
            _ => false,
        }
    }

    /// Makes this inode, if it is an empty file, a copy of another; whether it could.
    pub(super) fn absorb_copy(&mut self, path: &[u8], original: Original) -> bool {
        let is_empty = self.file_type == FileType::Regular
            && self.content.is_empty()
            && self.original.is_none();
        let is_it = path == self.path && is_empty;
        if is_it {
            self.original = Some(original);
        }
        is_it
    }

    /// Fails if the change removes other attributes, which is up to the file system.
    fn set_attributes(&mut self, attributes: &SetAttributes) -> bool {
        let is_new_owner = attributes.uid.is_some();
        let is_capability = |(name, _): &(Vec<u8>, Vec<u8>)| name == CAPABILITY;
        if is_new_owner && self.xattrs.iter().any(is_capability) {
            return false;
        }
        let stays = |permissions: &u32| is_new_owner && permissions & REMOVED_BY_OWNER == 0;
        let permissions = self.attributes.permissions.take_if(|permissions| stays(permissions));
        let merged = merged(&self.attributes, attributes);
        if let Some(merged) = merged {
            self.attributes = merged;
        }
        if self.attributes.permissions.is_none() {
            self.attributes.permissions = permissions;
        }
        merged.is_some()
    }

    /// Adds an attribute of users or of security. Setting others changes more.
    fn set_xattr(&mut self, name: &[u8], data: &[u8]) -> bool {
        let is_plain = PLAIN.iter().any(|space| name.starts_with(space));
        let len_bytes = |(name, data): &(Vec<u8>, Vec<u8>)| name.len() + data.len();
        let gathered_bytes: usize = self.xattrs.iter().map(len_bytes).sum();
        let has_room = is_plain
            && self.xattrs.len() < MOST_XATTRS
            && gathered_bytes + name.len() + data.len() <= MOST_XATTR_BYTES;
        if has_room {
            self.xattrs.retain(|(known, _)| known != name);
            self.xattrs.push((name.to_vec(), data.to_vec()));
        }
        has_room
    }

    /// Creates the inode.
    pub(super) fn make(
        mut self,
        names: &mut Names,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), CommandError> {
        let path = mem::take(&mut self.path);
        let made = self.make_all(names, &path, goes_on);
        let action = Action::Command(self.command);
        made.map_err(|error| CommandError { action, path, problem: error.into() })
    }

    fn make_all(
        &mut self,
        names: &mut Names,
        path: &[u8],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        // If that fails, there is no copy.
        let original = self.original.map(|from| original::open(from, names.filesystem()));
        let original = original.transpose()?;
        let inode = match self.make_at(names, path) {
            // A moved inode replaces the existing one.
            Err(Error::AlreadyExists) if self.made_at.is_some() => self.make_over(names, path),
            made => made,
        }?;
        if let Some(original) = original {
            let is_shared = copy_content(&original, &inode.clone().into_file()?, goes_on)?;
            if !is_shared {
                self.set_all(&inode, self.attributes)?;
            }
        }
        Ok(())
    }

    fn make_at(&mut self, names: &mut Names, path: &[u8]) -> Result<Inode, Error> {
        let (directory, name) = names.parent_and_name(path)?;
        if names.lets_inherit() && directory.passes_something_on()? {
            let inode = self.make_in_steps(&directory, name)?;
            names.note(path, inode.clone());
            return Ok(inode);
        }
        let mut whole = WholeInode {
            new: self.new,
            attributes: &self.attributes,
            xattrs: &self.xattrs,
            content: mem::take(&mut self.content),
        };
        let made = whole.create_in(&directory, name);
        self.content = whole.content;
        let inode = made?;
        names.note(path, inode.clone());
        Ok(inode)
    }

    /// Creates the inode with all that it inherits from its directory: a default ACL limits its
    /// permissions.
    fn make_in_steps(&self, directory: &Directory, name: &OsStr) -> Result<Inode, Error> {
        if self.file_type == FileType::Symlink {
            let target = Path::new(OsStr::from_bytes(&self.content));
            let inode = directory.symlink_child(name, target, &self.new)?;
            self.set_all(&inode, self.attributes)?;
            return Ok(inode);
        }
        let permissions = self.attributes.permissions.unwrap_or(self.new.mode & PERMISSIONS);
        let mode = self.new.mode & !PERMISSIONS | permissions;
        let inode = directory.create_child(name, &NewInode { mode, ..self.new })?;
        if !self.content.is_empty() {
            inode.clone().into_file()?.write_at(&self.content, 0)?;
        }
        // A new owner takes permissions away.
        let permissions = self.attributes.permissions.filter(|_| self.attributes.uid.is_some());
        self.set_all(&inode, SetAttributes { permissions, ..self.attributes })?;
        Ok(inode)
    }

    fn set_all(&self, inode: &Inode, attributes: SetAttributes) -> Result<(), Error> {
        for (name, value) in &self.xattrs {
            inode.set_xattr(OsStr::from_bytes(name), value, XattrMode::Any)?;
        }
        inode.set_attributes(&attributes)
    }

    fn make_over(&mut self, names: &mut Names, path: &[u8]) -> Result<Inode, Error> {
        let made_at = self.made_at.take().unwrap_or_default();
        let inode = self.make_at(names, &made_at)?;
        names.forget(&made_at);
        names.forget(path);
        let (from, name) = names.parent_and_name(&made_at)?;
        let (to, new_name) = names.parent_and_name(path)?;
        let check = |found: &Inode| {
            if *found == inode { Ok(()) } else { Err(Error::NotPermitted(REPLACED)) }
        };
        let may = |moved: &Inode, _: Option<&Inode>| check(moved);
        let renamed = from.rename_child_if(name, &to, new_name, RenameMode::Replace, may);
        if renamed.is_err() && names.lets_inherit() {
            // Nobody asked for the first name.
            let _ = from.remove_child_if(name, check);
        }
        renamed?;
        names.note(path, inode.clone());
        Ok(inode)
    }
}

fn type_bits(file_type: FileType) -> u32 {
    match file_type {
        FileType::Regular => 0o100_000,
        FileType::Directory => 0o040_000,
        FileType::Symlink => 0o120_000,
        FileType::BlockDevice => 0o060_000,
        FileType::CharDevice => 0o020_000,
        FileType::Fifo => 0o010_000,
        FileType::Socket => 0o140_000,
    }
}
