//! Where a file system is.

/// Where a file system is in an image file or on a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Where btrfs is: the whole, or the only partition that holds one.
    #[default]
    Found,
    /// The partition with this number. Logical partitions of an MBR begin at 5.
    Partition(u32),
    /// From this byte on: to the end of the partition that it lies in, otherwise to the end of the
    /// whole.
    Offset(u64),
}

impl Place {
    /// The whole.
    pub const WHOLE: Self = Self::Offset(0);
}
