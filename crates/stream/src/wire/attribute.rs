//! Attributes: the typed parts of a command.

use larder_format::Uuid;

use super::error::StreamProblem;

macro_rules! attributes {
    ($($(#[$meta:meta])* $name:ident = $number:literal, $shown:literal;)*) => {
        /// An attribute of a command (`BTRFS_SEND_A_*`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Attribute {
            $($(#[$meta])* $name = $number,)*
        }

        impl Attribute {
            /// The number of numbers, including 0, which is not an attribute.
            const COUNT: usize = [$($number),*].len() + 1;

            /// The attribute of this number.
            pub fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $shown,)*
                }
            }
        }
    };
}

attributes! {
    /// Uuid of the subvolume that is sent.
    Uuid = 1, "uuid";
    /// The transaction that last changed it.
    Ctransid = 2, "ctransid";
    /// Inode number on the sender.
    Ino = 3, "inode";
    /// Length in bytes.
    Size = 4, "size";
    /// Permissions, with the type for special files.
    Mode = 5, "mode";
    /// Owner.
    Uid = 6, "uid";
    /// Group.
    Gid = 7, "gid";
    /// Device number.
    Rdev = 8, "rdev";
    /// Last change of the inode.
    Ctime = 9, "ctime";
    /// Last change of content.
    Mtime = 10, "mtime";
    /// Last access.
    Atime = 11, "atime";
    /// Creation.
    Otime = 12, "otime";
    /// Name of an extended attribute.
    XattrName = 13, "xattr name";
    /// Value of an extended attribute.
    XattrData = 14, "xattr data";
    /// The path that the command is about.
    Path = 15, "path";
    /// The path that it gets.
    PathTo = 16, "path to";
    /// The path that it links to; of a symbolic link the target.
    PathLink = 17, "path link";
    /// Offset in the file.
    FileOffset = 18, "file offset";
    /// Content of a file.
    Data = 19, "data";
    /// Uuid of the subvolume to clone from.
    CloneUuid = 20, "clone uuid";
    /// The transaction that last changed it.
    CloneCtransid = 21, "clone ctransid";
    /// Path of the file to clone from.
    ClonePath = 22, "clone path";
    /// Offset in the file to clone from.
    CloneOffset = 23, "clone offset";
    /// Length of what is cloned.
    CloneLen = 24, "clone length";
    /// Mode of `fallocate`.
    FallocateMode = 25, "fallocate mode";
    /// Inode flags.
    Fileattr = 26, "file attributes";
    /// Bytes of the file that an encoded write covers.
    UnencodedFileLen = 27, "unencoded file length";
    /// Bytes of the whole extent when decoded.
    UnencodedLen = 28, "unencoded length";
    /// Where in the decoded extent the part begins.
    UnencodedOffset = 29, "unencoded offset";
    /// Algorithm of compression.
    Compression = 30, "compression";
    /// Algorithm of encryption.
    Encryption = 31, "encryption";
    /// Hash algorithm of verity.
    VerityAlgorithm = 32, "verity algorithm";
    /// Block size of verity.
    VerityBlockSize = 33, "verity block size";
    /// Salt of verity.
    VeritySalt = 34, "verity salt";
    /// Signature of verity.
    VeritySignature = 35, "verity signature";
}

/// A point in time (`struct btrfs_timespec`). The nanoseconds may be a second or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds forward from there.
    pub nanoseconds: u32,
}

/// The attributes of one command, by their numbers.
pub(super) struct Attributes<'a> {
    values: [Option<&'a [u8]>; Attribute::COUNT],
}

impl<'a> Attributes<'a> {
    pub(super) fn new() -> Self {
        Self { values: [None; Attribute::COUNT] }
    }

    /// Adds an attribute; whether it was not there yet.
    pub(super) fn insert(&mut self, attribute: Attribute, value: &'a [u8]) -> bool {
        self.values[attribute as usize].replace(value).is_none()
    }

    pub(super) fn get<T: Value<'a>>(&self, attribute: Attribute) -> Result<T, StreamProblem> {
        T::get(self.values[attribute as usize], attribute)
    }
}

/// The type of an attribute's value.
pub(super) trait Value<'a>: Sized {
    /// The value, if `stored` is valid.
    fn get(stored: Option<&'a [u8]>, attribute: Attribute) -> Result<Self, StreamProblem>;

    /// Calls `put` with the stored form, if there is one.
    fn put(&self, put: &mut dyn FnMut(&[u8]));
}

impl<'a> Value<'a> for &'a [u8] {
    fn get(stored: Option<&'a [u8]>, attribute: Attribute) -> Result<Self, StreamProblem> {
        stored.ok_or(StreamProblem::MissingAttribute(attribute))
    }

    fn put(&self, put: &mut dyn FnMut(&[u8])) {
        put(self);
    }
}

impl<'a, T: Value<'a>> Value<'a> for Option<T> {
    fn get(stored: Option<&'a [u8]>, attribute: Attribute) -> Result<Self, StreamProblem> {
        stored.map(|stored| T::get(Some(stored), attribute)).transpose()
    }

    fn put(&self, put: &mut dyn FnMut(&[u8])) {
        if let Some(value) = self {
            value.put(put);
        }
    }
}

/// The bytes of a value of fixed length.
fn fixed<const LEN: usize>(
    stored: Option<&[u8]>,
    attribute: Attribute,
) -> Result<[u8; LEN], StreamProblem> {
    let stored = stored.ok_or(StreamProblem::MissingAttribute(attribute))?;
    let problem = StreamProblem::AttributeLength { attribute, len: stored.len(), expected: LEN };
    stored.try_into().map_err(|_| problem)
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl<'a> Value<'a> for $number {
            fn get(stored: Option<&'a [u8]>, attribute: Attribute) -> Result<Self, StreamProblem> {
                fixed(stored, attribute).map(Self::from_le_bytes)
            }

            fn put(&self, put: &mut dyn FnMut(&[u8])) {
                put(&self.to_le_bytes());
            }
        }
    )*};
}

numbers!(u8, u32, u64);

impl<'a> Value<'a> for Uuid {
    fn get(stored: Option<&'a [u8]>, attribute: Attribute) -> Result<Self, StreamProblem> {
        fixed(stored, attribute).map(Self::from_bytes)
    }

    fn put(&self, put: &mut dyn FnMut(&[u8])) {
        put(self.as_bytes());
    }
}

impl<'a> Value<'a> for Timestamp {
    fn get(stored: Option<&'a [u8]>, attribute: Attribute) -> Result<Self, StreamProblem> {
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3] = fixed(stored, attribute)?;
        Ok(Self {
            seconds: i64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            nanoseconds: u32::from_le_bytes([n0, n1, n2, n3]),
        })
    }

    fn put(&self, put: &mut dyn FnMut(&[u8])) {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.seconds.to_le_bytes());
        bytes[8..].copy_from_slice(&self.nanoseconds.to_le_bytes());
        put(&bytes);
    }
}
