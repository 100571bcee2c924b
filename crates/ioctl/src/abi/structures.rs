//! The structures that requests read and fill: plain numbers, in the byte order of the machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a name in [`VolArgs`], with the zero at its end.
pub const NAME_BYTES: usize = 4088;
/// Bytes of a name in [`VolArgsV2`], with the zero at its end.
pub const NAME_V2_BYTES: usize = 4040;
/// Bytes of a label with the zero at its end (`BTRFS_LABEL_SIZE`).
pub const LABEL_BYTES: usize = 256;
/// Bytes of a name of a subvolume with the zero at its end.
pub const SUBVOL_NAME_BYTES: usize = 256;
/// `BTRFS_SUBVOL_RDONLY`.
pub const SUBVOL_RDONLY: u64 = 1 << 1;
/// `BTRFS_DEVICE_SPEC_BY_ID`: the first eight bytes of the name are the id of a device.
pub const DEVICE_SPEC_BY_ID: u64 = 1 << 3;
/// `BTRFS_SUBVOL_SPEC_BY_ID`: the first eight bytes of the name are the id of a subvolume.
pub const SUBVOL_SPEC_BY_ID: u64 = 1 << 4;
/// `BTRFS_LOGICAL_INO_ARGS_IGNORE_OFFSET`.
pub const IGNORE_OFFSET: u64 = 1;
/// Subvolumes that one [`RootRefArgs`] has room for (`BTRFS_MAX_ROOTREF_BUFFER_NUM`).
pub const MOST_ROOT_REFS: usize = 255;

/// `FIEMAP_FLAG_SYNC`: data that is in memory only is written back first.
pub const FIEMAP_SYNC: u32 = 0x1;
/// `FIEMAP_EXTENT_LAST`: no extent of the file follows.
pub const EXTENT_LAST: u32 = 0x1;
/// `FIEMAP_EXTENT_UNKNOWN`: it has no place yet.
pub const EXTENT_UNKNOWN: u32 = 0x2;
/// `FIEMAP_EXTENT_DELALLOC`: its data is in memory only.
pub const EXTENT_DELALLOC: u32 = 0x4;
/// `FIEMAP_EXTENT_ENCODED`: its data is compressed.
pub const EXTENT_ENCODED: u32 = 0x8;
/// `FIEMAP_EXTENT_NOT_ALIGNED`: its length is no multiple of a sector.
pub const EXTENT_NOT_ALIGNED: u32 = 0x100;
/// `FIEMAP_EXTENT_DATA_INLINE`: its data is in a tree.
pub const EXTENT_INLINE: u32 = 0x200;
/// `FIEMAP_EXTENT_UNWRITTEN`: it is preallocated, and reads as zeros.
pub const EXTENT_UNWRITTEN: u32 = 0x800;
/// `FIEMAP_EXTENT_SHARED`: other files use it too.
pub const EXTENT_SHARED: u32 = 0x2000;

/// Counters in [`DevStatsArgs`]: writes, reads, flushes, corruption, generations.
pub const DEV_STATS: usize = 5;
/// `BTRFS_DEV_STATS_RESET`.
pub const DEV_STATS_RESET: u64 = 1;
/// `BTRFS_SCRUB_READONLY`.
pub const SCRUB_READ_ONLY: u64 = 1;
/// Sets the limit in [`ScrubLimitArgs`].
pub const SET_SCRUB_LIMIT: u64 = 1;
/// In the state of [`BalanceArgs`]: the balance goes on.
pub const BALANCE_RUNNING: u64 = 1;
/// In the state of [`BalanceArgs`]: it was asked to pause.
pub const BALANCE_PAUSE_REQUESTED: u64 = 1 << 1;
/// In the state of [`BalanceArgs`]: it was asked to end.
pub const BALANCE_CANCEL_REQUESTED: u64 = 1 << 2;
/// The number by which [`BALANCE_CTL`](super::BALANCE_CTL) pauses.
pub const BALANCE_PAUSE: i32 = 1;
/// The number by which [`BALANCE_CTL`](super::BALANCE_CTL) cancels.
pub const BALANCE_CANCEL: i32 = 2;
/// The version of [`HealthArgs`].
pub const HEALTH_VERSION: u32 = 1;
/// The version of [`MetricsArgs`].
pub const METRICS_VERSION: u32 = 1;
/// Bytes of the longest text in [`MetricsArgs`].
pub const METRICS_BYTES: usize = 8184;
/// Bytes of the longest reason in [`HealthArgs`].
pub const REASON_BYTES: usize = 2048;

macro_rules! structure {
    ($(#[$meta:meta])* $name:ident, $size:literal { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        #[allow(missing_docs, reason = "linux/btrfs.h and linux/fs.h have the fields")]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    };
}

structure! {
    /// `struct btrfs_ioctl_vol_args`.
    VolArgs, 4096 { fd: i64, name: [u8; NAME_BYTES], }
}
structure! {
    /// `struct btrfs_ioctl_vol_args_v2`. A snapshot in an [`Envelope`] has the
    /// [token](crate::channel::Token) of its source in `unused`, since FUSE passes on no descriptor.
    VolArgsV2, 4096 {
        fd: i64,
        transid: u64,
        flags: u64,
        unused: [u64; 4],
        name: [u8; NAME_V2_BYTES],
    }
}
structure! {
    /// `struct file_clone_range`.
    CloneRange, 32 {
        source_fd: i64,
        source_offset: u64,
        source_len_bytes: u64,
        target_offset: u64,
    }
}
structure! {
    /// `struct fsxattr`.
    FsXattr, 28 {
        xflags: u32,
        extsize: u32,
        nextents: u32,
        projid: u32,
        cowextsize: u32,
        pad: [u8; 8],
    }
}
structure! {
    /// `struct fiemap`, before its array.
    Fiemap, 32 {
        start: u64,
        length: u64,
        flags: u32,
        mapped_extents: u32,
        extent_count: u32,
        reserved: u32,
    }
}
structure! {
    /// `struct fiemap_extent`.
    FiemapExtent, 56 {
        logical: u64,
        physical: u64,
        length: u64,
        reserved_words: [u64; 2],
        flags: u32,
        reserved: [u32; 3],
    }
}
structure! {
    /// `struct btrfs_ioctl_timespec`.
    Timespec, 16 { sec: u64, nsec: u32, padding: u32, }
}
structure! {
    /// `struct btrfs_ioctl_received_subvol_args`.
    ReceivedArgs, 200 {
        uuid: [u8; 16],
        stransid: u64,
        rtransid: u64,
        stime: Timespec,
        rtime: Timespec,
        flags: u64,
        reserved: [u64; 16],
    }
}
structure! {
    /// `struct btrfs_ioctl_get_subvol_info_args`.
    SubvolInfoArgs, 504 {
        treeid: u64,
        name: [u8; SUBVOL_NAME_BYTES],
        parent_id: u64,
        dirid: u64,
        generation: u64,
        flags: u64,
        uuid: [u8; 16],
        parent_uuid: [u8; 16],
        received_uuid: [u8; 16],
        ctransid: u64,
        otransid: u64,
        stransid: u64,
        rtransid: u64,
        ctime: Timespec,
        otime: Timespec,
        stime: Timespec,
        rtime: Timespec,
        reserved: [u64; 8],
    }
}
structure! {
    /// A subvolume in [`RootRefArgs`].
    RootRefEntry, 16 { treeid: u64, dirid: u64, }
}
structure! {
    /// `struct btrfs_ioctl_get_subvol_rootref_args`.
    RootRefArgs, 4096 {
        min_treeid: u64,
        rootref: [RootRefEntry; MOST_ROOT_REFS],
        num_items: u8,
        align: [u8; 7],
    }
}
structure! {
    /// `struct btrfs_ioctl_ino_lookup_args`.
    InoLookupArgs, 4096 { treeid: u64, objectid: u64, name: [u8; 4080], }
}
structure! {
    /// `struct btrfs_ioctl_ino_lookup_user_args`.
    InoLookupUserArgs, 4096 {
        dirid: u64,
        treeid: u64,
        name: [u8; SUBVOL_NAME_BYTES],
        path: [u8; 3824],
    }
}
structure! {
    /// `struct btrfs_ioctl_ino_path_args`.
    InoPathArgs, 56 { inum: u64, size: u64, reserved: [u64; 4], fspath: u64, }
}
structure! {
    /// `struct btrfs_ioctl_logical_ino_args`.
    LogicalInoArgs, 56 { logical: u64, size: u64, reserved: [u64; 3], flags: u64, inodes: u64, }
}
structure! {
    /// `struct btrfs_data_container`, before its values of 64 bits each.
    DataContainer, 16 { bytes_left: u32, bytes_missing: u32, elem_cnt: u32, elem_missed: u32, }
}
structure! {
    /// `struct btrfs_ioctl_search_key`.
    SearchKey, 104 {
        tree_id: u64,
        min_objectid: u64,
        max_objectid: u64,
        min_offset: u64,
        max_offset: u64,
        min_transid: u64,
        max_transid: u64,
        min_type: u32,
        max_type: u32,
        nr_items: u32,
        unused: u32,
        unused_words: [u64; 4],
    }
}
structure! {
    /// `struct btrfs_ioctl_search_args`.
    SearchArgs, 4096 { key: SearchKey, buf: [u8; 3992], }
}
structure! {
    /// `struct btrfs_ioctl_search_args_v2`, before its buffer.
    SearchArgsV2, 112 { key: SearchKey, buf_size: u64, }
}
structure! {
    /// `struct btrfs_ioctl_search_header`, before the item.
    SearchHeader, 32 { transid: u64, objectid: u64, offset: u64, item_type: u32, len: u32, }
}
structure! {
    /// `struct btrfs_ioctl_space_args`, before its array.
    SpaceArgs, 16 { space_slots: u64, total_spaces: u64, }
}
/// `BTRFS_SPACE_INFO_GLOBAL_RSV`, a flag of the space that is reserved in memory. It is no block
/// group.
pub const GLOBAL_RESERVE: u64 = 1 << 49;

structure! {
    /// `struct btrfs_ioctl_space_info`.
    SpaceInfo, 24 { flags: u64, total_bytes: u64, used_bytes: u64, }
}
structure! {
    /// `struct btrfs_ioctl_dev_info_args`.
    DevInfoArgs, 4096 {
        devid: u64,
        uuid: [u8; 16],
        bytes_used: u64,
        total_bytes: u64,
        fsid: [u8; 16],
        unused: [u64; 377],
        path: [u8; 1024],
    }
}
structure! {
    /// `struct btrfs_ioctl_get_dev_stats`.
    DevStatsArgs, 1032 {
        devid: u64,
        nr_items: u64,
        flags: u64,
        values: [u64; DEV_STATS],
        unused: [u64; 121],
    }
}
structure! {
    /// `struct btrfs_scrub_progress`.
    ScrubProgressArgs, 120 {
        data_extents_scrubbed: u64,
        tree_extents_scrubbed: u64,
        data_bytes_scrubbed: u64,
        tree_bytes_scrubbed: u64,
        read_errors: u64,
        csum_errors: u64,
        verify_errors: u64,
        no_csum: u64,
        csum_discards: u64,
        super_errors: u64,
        malloc_errors: u64,
        uncorrectable_errors: u64,
        corrected_errors: u64,
        last_physical: u64,
        unverified_errors: u64,
    }
}
structure! {
    /// `struct btrfs_ioctl_scrub_args`.
    ScrubArgs, 1024 {
        devid: u64,
        start: u64,
        end: u64,
        flags: u64,
        progress: ScrubProgressArgs,
        unused: [u64; 109],
    }
}
structure! {
    /// `struct btrfs_balance_args`.
    BalanceFilterArgs, 136 {
        profiles: u64,
        usage: u64,
        devid: u64,
        pstart: u64,
        pend: u64,
        vstart: u64,
        vend: u64,
        target: u64,
        flags: u64,
        limit: u64,
        stripes_min: u32,
        stripes_max: u32,
        unused: [u64; 6],
    }
}
structure! {
    /// `struct btrfs_ioctl_balance_args`.
    BalanceArgs, 1024 {
        flags: u64,
        state: u64,
        data: BalanceFilterArgs,
        meta: BalanceFilterArgs,
        sys: BalanceFilterArgs,
        expected: u64,
        considered: u64,
        completed: u64,
        unused: [u64; 72],
    }
}
structure! {
    /// `struct btrfs_ioctl_dev_replace_args`: of the union the largest part.
    ReplaceArgs, 2600 {
        command: u64,
        result: u64,
        start: ReplaceStart,
        spare: [u64; 64],
    }
}
structure! {
    /// `struct btrfs_ioctl_dev_replace_start_params`, as long as the union. On a mount of larder,
    /// an empty name of the target means to go on with what was interrupted.
    ReplaceStart, 2072 {
        source: u64,
        avoids_source: u64,
        source_name: [u8; 1025],
        target_name: [u8; 1025],
        unused: [u8; 6],
    }
}
structure! {
    /// `struct btrfs_ioctl_dev_replace_status_params`.
    ReplaceStatusArgs, 48 {
        state: u64,
        permille: u64,
        started: u64,
        stopped: u64,
        write_errors: u64,
        read_errors: u64,
    }
}
structure! {
    /// How fast a device of a Larder mount is scrubbed: bytes in a second, 0 for no limit.
    ScrubLimitArgs, 32 {
        devid: u64,
        flags: u64,
        limit: u64,
        unused: u64,
    }
}
structure! {
    /// The health of a Larder mount: the answer to [`HEALTH`](super::HEALTH). Times are seconds
    /// since 1970, and 0 for events that did not happen.
    HealthArgs, 2096 {
        version: u32,
        reason_len: u32,
        generation: u64,
        committed_at: u64,
        made_read_only_at: u64,
        healed_copies: u64,
        unused: u64,
        reason: [u8; REASON_BYTES],
    }
}
structure! {
    /// The metrics of a Larder mount, as text: the answer to [`METRICS`](super::METRICS).
    MetricsArgs, 8192 {
        version: u32,
        text_len: u32,
        text: [u8; METRICS_BYTES],
    }
}
structure! {
    /// `struct btrfs_ioctl_fs_info_args`.
    FsInfoArgs, 1024 {
        max_id: u64,
        num_devices: u64,
        fsid: [u8; 16],
        nodesize: u32,
        sectorsize: u32,
        clone_alignment: u32,
        csum_type: u16,
        csum_size: u16,
        flags: u64,
        generation: u64,
        metadata_uuid: [u8; 16],
        reserved: [u8; 944],
    }
}
structure! {
    /// `struct btrfs_ioctl_feature_flags`.
    FeatureFlags, 24 { compat: u64, compat_ro: u64, incompat: u64, }
}

/// Bytes of an envelope: the most that the number of a request can count, in whole words.
const ENVELOPE_BYTES: usize = 16_376;
/// Bytes of a request in an [`Envelope`] with all that follows it.
pub const MOST_IN_ENVELOPE: usize = ENVELOPE_BYTES - 16;
/// The version of [`Envelope`].
pub const ENVELOPE_VERSION: u32 = 1;

structure! {
    /// A request of btrfs that FUSE cannot pass on, since its number does not count all its bytes,
    /// or since it holds a pointer or a descriptor.
    ///
    /// `data` begins with `len` bytes of the request: its structure, then the array or buffer that
    /// follows it or that it points to; pointers in it are ignored. In place of the descriptor of a
    /// subvolume, `SNAP_CREATE_V2` has the subvolume's id. The answer comes in the same form.
    Envelope, 16_376 {
        version: u32,
        request: u32,
        len: u32,
        reserved: u32,
        data: [u8; MOST_IN_ENVELOPE],
    }
}
