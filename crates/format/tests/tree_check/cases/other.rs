//! Free space, quota groups, stripes, and leaves without items.

use larder_format::{ItemType, objectid};

use super::{Case, key, sound, wrong};

fn empty(owner: u64, problem: Option<&'static str>) -> Case {
    let case = problem.map_or_else(|| sound("empty tree", []), |problem| wrong(problem, []));
    Case { owner, ..case }
}

fn free_space_cases() -> Vec<Case> {
    let item = |item_type, start, len, size| [(key(start, item_type, len), vec![0xff; size])];
    use ItemType as T;
    let bitmap = 256 * 8 * 4096;
    vec![
        sound("free space info", item(T::FREE_SPACE_INFO, 1 << 20, 1 << 20, 8)),
        sound("free range", item(T::FREE_SPACE_EXTENT, 1 << 20, 4096, 0)),
        sound("full bitmap", item(T::FREE_SPACE_BITMAP, 1 << 20, bitmap, 256)),
        sound("short bitmap", item(T::FREE_SPACE_BITMAP, 1 << 20, 9 * 4096, 2)),
        wrong("7 bytes where 8", item(T::FREE_SPACE_INFO, 1 << 20, 1 << 20, 7)),
        wrong("1 bytes where 0", item(T::FREE_SPACE_EXTENT, 1 << 20, 4096, 1)),
        wrong("1 bytes where 2", item(T::FREE_SPACE_BITMAP, 1 << 20, 9 * 4096, 1)),
        wrong("a bitmap of 2049 sectors", item(T::FREE_SPACE_BITMAP, 1 << 20, bitmap + 4096, 257)),
        wrong("0 bytes from", item(T::FREE_SPACE_EXTENT, 1 << 20, 0, 0)),
        wrong("5 bytes from", item(T::FREE_SPACE_EXTENT, 1 << 20, 5, 0)),
        wrong("from 5 are", item(T::FREE_SPACE_EXTENT, 5, 4096, 0)),
        wrong("are no range", item(T::FREE_SPACE_EXTENT, 0_u64.wrapping_sub(4096), 8192, 0)),
    ]
}

fn quota_cases() -> Vec<Case> {
    use ItemType as T;
    let item = |item_type, size| [(key(0, item_type, 5), vec![0; size])];
    vec![
        sound("quota status", item(T::QGROUP_STATUS, 32)),
        sound("simple quota status", item(T::QGROUP_STATUS, 40)),
        sound("quota counts", item(T::QGROUP_INFO, 40)),
        sound("quota limits", item(T::QGROUP_LIMIT, 40)),
        sound("quota relation", item(T::QGROUP_RELATION, 0)),
        wrong("33 bytes", item(T::QGROUP_STATUS, 33)),
        wrong("39 bytes", item(T::QGROUP_INFO, 39)),
        wrong("41 bytes", item(T::QGROUP_LIMIT, 41)),
        wrong("1 bytes", item(T::QGROUP_RELATION, 1)),
    ]
}

pub(super) fn cases() -> Vec<Case> {
    let stripe = |start| [(key(start, ItemType::RAID_STRIPE, 65536), vec![0; 32])];
    let special = vec![
        empty(objectid::CSUM_TREE, None),
        empty(objectid::FS_TREE, Some("tree 5 is empty")),
        empty(0, Some("owner is 0")),
        sound("unknown type", [(key(1, ItemType(77), 0), vec![1, 2, 3])]),
        wrong("without the feature RAID_STRIPE_TREE", stripe(65536)),
        wrong("address 5 is not a multiple", stripe(5)),
    ];
    let free_space_and_quota = free_space_cases()
        .into_iter()
        .chain(quota_cases())
        .map(|case| if case.problem.is_some() { case.stricter_than_kernel() } else { case });
    special.into_iter().chain(free_space_and_quota).collect()
}
