//! Commands: one table describes how each is read and written.

use larder_format::Uuid;

use super::attribute::{Attribute, Attributes, Timestamp, Value};
use super::error::StreamProblem;

macro_rules! commands {
    ($(
        $(#[$meta:meta])*
        $name:ident = $number:literal, $shown:literal {
            $($(#[$field_meta:meta])* $field:ident: $type:ty = $attribute:ident,)*
        }
    )*) => {
        /// A command (`BTRFS_SEND_C_*`). Paths are relative to the subvolume that is received,
        /// without a slash in front: that of its root is empty.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Command<'a> {
            $($(#[$meta])* $name { $($(#[$field_meta])* $field: $type,)* },)*
            /// The end of the stream.
            End,
        }

        /// A command without what it says.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CommandKind {
            $($(#[$meta])* $name,)*
            /// The end of the stream.
            End,
        }

        impl CommandKind {
            /// Its name, as `btrfs receive --dump` prints it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $shown,)*
                    Self::End => "end",
                }
            }
        }

        impl<'a> Command<'a> {
            /// Its number.
            pub fn number(&self) -> u16 {
                match self {
                    $(Self::$name { .. } => $number,)*
                    Self::End => 21,
                }
            }

            /// Which one it is.
            pub fn kind(&self) -> CommandKind {
                match self {
                    $(Self::$name { .. } => CommandKind::$name,)*
                    Self::End => CommandKind::End,
                }
            }

            /// Its name, as `btrfs receive --dump` prints it.
            pub fn name(&self) -> &'static str {
                self.kind().name()
            }

            /// The path that it concerns; `None` for the end.
            pub fn path(&self) -> Option<&'a [u8]> {
                match *self {
                    $(Self::$name { path, .. } => Some(path),)*
                    Self::End => None,
                }
            }

            /// The command of this number with these attributes. Others are ignored.
            pub(super) fn from_attributes(
                number: u16,
                attributes: &Attributes<'a>,
            ) -> Result<Self, StreamProblem> {
                Ok(match number {
                    $($number => Self::$name {
                        $($field: attributes.get(Attribute::$attribute)?,)*
                    },)*
                    21 => Self::End,
                    _ => return Err(StreamProblem::UnknownCommand(number)),
                })
            }

            /// Calls `put` with each attribute, in the order in which the kernel sends them.
            pub(super) fn for_each_attribute(&self, mut put: impl FnMut(Attribute, &[u8])) {
                match self {
                    $(Self::$name { $($field,)* } => {
                        $($field.put(&mut |bytes| put(Attribute::$attribute, bytes));)*
                    })*
                    Self::End => {}
                }
            }
        }
    };
}

commands! {
    /// Begins a new subvolume.
    Subvol = 1, "subvol" {
        /// Its name.
        path: &'a [u8] = Path,
        /// Uuid of its source.
        uuid: Uuid = Uuid,
        /// The transaction that last changed the source.
        ctransid: u64 = Ctransid,
    }
    /// Begins a new subvolume as a snapshot of one that was received before.
    Snapshot = 2, "snapshot" {
        /// Its name.
        path: &'a [u8] = Path,
        /// Uuid of its source.
        uuid: Uuid = Uuid,
        /// The transaction that last changed the source.
        ctransid: u64 = Ctransid,
        /// Uuid of the parent.
        clone_uuid: Uuid = CloneUuid,
        /// The transaction that last changed the parent.
        clone_ctransid: u64 = CloneCtransid,
    }
    /// Makes an empty file.
    Mkfile = 3, "mkfile" {
        /// Its path.
        path: &'a [u8] = Path,
        /// Its inode number where it comes from.
        ino: u64 = Ino,
    }
    /// Makes a directory.
    Mkdir = 4, "mkdir" {
        /// Its path.
        path: &'a [u8] = Path,
        /// Its inode number where it comes from.
        ino: u64 = Ino,
    }
    /// Makes a device node.
    Mknod = 5, "mknod" {
        /// Its path.
        path: &'a [u8] = Path,
        /// Its inode number where it comes from.
        ino: u64 = Ino,
        /// Device number as user space has it.
        rdev: u64 = Rdev,
        /// Type and permissions.
        mode: u64 = Mode,
    }
    /// Makes a named pipe.
    Mkfifo = 6, "mkfifo" {
        /// Its path.
        path: &'a [u8] = Path,
        /// Its inode number where it comes from.
        ino: u64 = Ino,
        /// Nothing, though it is sent.
        rdev: Option<u64> = Rdev,
        /// Type and permissions.
        mode: Option<u64> = Mode,
    }
    /// Makes a socket.
    Mksock = 7, "mksock" {
        /// Its path.
        path: &'a [u8] = Path,
        /// Its inode number where it comes from.
        ino: u64 = Ino,
        /// Nothing, though it is sent.
        rdev: Option<u64> = Rdev,
        /// Type and permissions.
        mode: Option<u64> = Mode,
    }
    /// Makes a symbolic link.
    Symlink = 8, "symlink" {
        /// Its path.
        path: &'a [u8] = Path,
        /// Its inode number where it comes from.
        ino: u64 = Ino,
        /// Where it points.
        target: &'a [u8] = PathLink,
    }
    /// Renames.
    Rename = 9, "rename" {
        /// The old name.
        path: &'a [u8] = Path,
        /// The new name.
        to: &'a [u8] = PathTo,
    }
    /// Adds a name to a file.
    Link = 10, "link" {
        /// The new name.
        path: &'a [u8] = Path,
        /// An existing name.
        existing: &'a [u8] = PathLink,
    }
    /// Removes a name of a file.
    Unlink = 11, "unlink" {
        /// The name.
        path: &'a [u8] = Path,
    }
    /// Removes an empty directory.
    Rmdir = 12, "rmdir" {
        /// Its path.
        path: &'a [u8] = Path,
    }
    /// Sets an extended attribute.
    SetXattr = 13, "set_xattr" {
        /// Whose.
        path: &'a [u8] = Path,
        /// The whole name.
        name: &'a [u8] = XattrName,
        /// The value.
        data: &'a [u8] = XattrData,
    }
    /// Removes an extended attribute.
    RemoveXattr = 14, "remove_xattr" {
        /// Whose.
        path: &'a [u8] = Path,
        /// The whole name.
        name: &'a [u8] = XattrName,
    }
    /// Writes to a file.
    Write = 15, "write" {
        /// The file.
        path: &'a [u8] = Path,
        /// Where in the file.
        offset: u64 = FileOffset,
        /// What.
        data: &'a [u8] = Data,
    }
    /// Shares a range of another file.
    Clone = 16, "clone" {
        /// Where in the file.
        offset: u64 = FileOffset,
        /// How much, in bytes.
        len: u64 = CloneLen,
        /// The file.
        path: &'a [u8] = Path,
        /// Uuid of the subvolume that has the other file.
        clone_uuid: Uuid = CloneUuid,
        /// The transaction that last changed that subvolume.
        clone_ctransid: u64 = CloneCtransid,
        /// The other file.
        clone_path: &'a [u8] = ClonePath,
        /// Where in the other file.
        clone_offset: u64 = CloneOffset,
    }
    /// Sets the length of a file.
    Truncate = 17, "truncate" {
        /// The file.
        path: &'a [u8] = Path,
        /// Length in bytes.
        size: u64 = Size,
    }
    /// Sets permissions.
    Chmod = 18, "chmod" {
        /// Whose.
        path: &'a [u8] = Path,
        /// The mode without its type.
        mode: u64 = Mode,
    }
    /// Sets owner and group.
    Chown = 19, "chown" {
        /// Whose.
        path: &'a [u8] = Path,
        /// Owner.
        uid: u64 = Uid,
        /// Group.
        gid: u64 = Gid,
    }
    /// Sets times.
    Utimes = 20, "utimes" {
        /// Whose.
        path: &'a [u8] = Path,
        /// Last access.
        atime: Timestamp = Atime,
        /// Last change of content.
        mtime: Timestamp = Mtime,
        /// Last change of the inode.
        ctime: Timestamp = Ctime,
        /// Creation, from version 2 on.
        otime: Option<Timestamp> = Otime,
    }
    /// In streams without data: says which range has changed.
    UpdateExtent = 22, "update_extent" {
        /// The file.
        path: &'a [u8] = Path,
        /// Where in the file.
        offset: u64 = FileOffset,
        /// How much, in bytes.
        len: u64 = Size,
    }
    /// Allocates or deallocates space of a file.
    Fallocate = 23, "fallocate" {
        /// The file.
        path: &'a [u8] = Path,
        /// Flags of the system call.
        mode: u32 = FallocateMode,
        /// Where in the file.
        offset: u64 = FileOffset,
        /// How much, in bytes.
        len: u64 = Size,
    }
    /// Tells the flags of an inode, as its item has them. No receiver sets them.
    Fileattr = 24, "fileattr" {
        /// Whose.
        path: &'a [u8] = Path,
        /// The flags (`BTRFS_INODE_*`).
        attributes: u64 = Fileattr,
    }
    /// Writes an extent as it is stored.
    EncodedWrite = 25, "encoded_write" {
        /// The file.
        path: &'a [u8] = Path,
        /// Where in the file.
        offset: u64 = FileOffset,
        /// Bytes of the file that it covers.
        unencoded_file_len: u64 = UnencodedFileLen,
        /// Bytes of the whole extent when decoded.
        unencoded_len: u64 = UnencodedLen,
        /// Where in the decoded extent the part begins.
        unencoded_offset: u64 = UnencodedOffset,
        /// Algorithm of compression (`BTRFS_ENCODED_IO_COMPRESSION_*`), if there is any.
        compression: Option<u32> = Compression,
        /// Algorithm of encryption, if there is any.
        encryption: Option<u32> = Encryption,
        /// The extent as it is stored.
        data: &'a [u8] = Data,
    }
    /// Makes a file a verity file.
    EnableVerity = 26, "enable_verity" {
        /// The file.
        path: &'a [u8] = Path,
        /// Hash algorithm.
        algorithm: u8 = VerityAlgorithm,
        /// Block size in bytes.
        block_size: u32 = VerityBlockSize,
        /// Salt.
        salt: &'a [u8] = VeritySalt,
        /// Signature.
        signature: &'a [u8] = VeritySignature,
    }
}
