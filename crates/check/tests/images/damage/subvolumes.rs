//! Subvolumes, the uuid tree, quotas.

use larder_check::Kind;
use larder_format::item::{QgroupInfoItem, RootItem, RootRefHeader};
use larder_format::objectid::{FS_TREE, QUOTA_TREE, ROOT_TREE, ROOT_TREE_DIR, UUID_TREE};
use larder_format::{ItemType, Key};

use super::Progs::{DoesNot, Sees};
use super::{Base, Wound, on, plain};
use crate::patient::{Found, Patient};

fn root_ref(patient: &Patient) -> Found {
    patient.find_type(ROOT_TREE, ItemType::ROOT_REF)
}

/// The uuid tree's item of a subvolume other than the top one, which may be missing.
fn listed_uuid(patient: &Patient) -> Found {
    patient.find(UUID_TREE, |key, data| {
        key.item_type == ItemType::UUID_KEY_SUBVOL && data != FS_TREE.to_le_bytes()
    })
}

fn back_ref(patient: &Patient) -> Found {
    let key = root_ref(patient).key;
    let back = Key::new(key.offset, ItemType::ROOT_BACKREF, key.objectid);
    patient.find(ROOT_TREE, |key, _| *key == back)
}

pub(super) fn wounds() -> Vec<Wound> {
    vec![
        plain("a back reference of a subvolume is gone", Kind::RootReference, Sees, |patient| {
            patient.remove(&back_ref(patient));
        }),
        plain("a subvolume without a name", Kind::SubvolumeUnnamed, Sees, |patient| {
            patient.remove(&back_ref(patient));
            patient.remove(&root_ref(patient));
        }),
        plain("the directory of a subvolume", Kind::RootReferenceDangling, Sees, |patient| {
            for reference in [back_ref(patient), root_ref(patient)] {
                patient.edit_as::<RootRefHeader>(&reference, |item| item.dirid += 1);
            }
        }),
        plain(
            "an entry of a subvolume that does not exist",
            Kind::EntryDangling,
            Sees,
            |patient| {
                let entry = patient.find(FS_TREE, |key, data| {
                    key.item_type == ItemType::DIR_INDEX && data[8] == ItemType::ROOT_ITEM.0
                });
                patient.edit(&entry, |data| data[1] ^= 0x40);
            },
        ),
        plain("an entry says that a subvolume is a file", Kind::ItemFormat, Sees, |patient| {
            let entry = patient.find(FS_TREE, |key, data| {
                key.item_type == ItemType::DIR_INDEX && data[8] == ItemType::ROOT_ITEM.0
            });
            patient.edit(&entry, |data| data[29] = 1);
        }),
        plain("the default subvolume does not exist", Kind::EntryDangling, DoesNot, |patient| {
            let entry = patient.find(ROOT_TREE, |key, _| {
                key.objectid == ROOT_TREE_DIR && key.item_type == ItemType::DIR_ITEM
            });
            patient.edit(&entry, |data| data[1] ^= 0x40);
        }),
        plain("a subvolume is deleted and not listed", Kind::OrphanMissing, Sees, |patient| {
            let root = patient.find(ROOT_TREE, |key, _| {
                key.item_type == ItemType::ROOT_ITEM && (256..1 << 40).contains(&key.objectid)
            });
            patient.edit_as::<RootItem>(&root, |item| item.refs = 0.into());
        }),
        plain("a subvolume in use is deleted in part", Kind::RootItem, Sees, |patient| {
            let root = patient.find(ROOT_TREE, |key, data| {
                let is_used = RootItem::parse(data).is_ok_and(|root| root.refs.get() == 1);
                let is_subvolume = (256..1 << 40).contains(&key.objectid);
                key.item_type == ItemType::ROOT_ITEM && is_subvolume && is_used
            });
            patient.edit_as::<RootItem>(&root, |item| {
                item.drop_progress = Key::new(300, ItemType::INODE_ITEM, 0).into();
                item.drop_level = 1;
            });
        }),
        plain("a subvolume is not in the uuid tree", Kind::UuidTree, DoesNot, |patient| {
            patient.remove(&listed_uuid(patient));
        }),
        plain("the uuid tree names another subvolume", Kind::UuidTree, DoesNot, |patient| {
            patient.edit(&listed_uuid(patient), |data| data[0] ^= 1);
        }),
        on(Base::Quota, "the count of a quota group", Kind::QuotaCount, Sees, |patient| {
            let info = patient.find_type(QUOTA_TREE, ItemType::QGROUP_INFO);
            patient.edit_as::<QgroupInfoItem>(&info, |item| item.rfer += 4096);
        }),
        on(
            Base::Quota,
            "the exclusive count of a quota group",
            Kind::QuotaCount,
            Sees,
            |patient| {
                let info = patient.find_type(QUOTA_TREE, ItemType::QGROUP_INFO);
                patient.edit_as::<QgroupInfoItem>(&info, |item| item.excl -= 4096);
            },
        ),
        on(
            Base::Quota,
            "the limits of a quota group are gone",
            Kind::QuotaItem,
            DoesNot,
            |patient| {
                patient.remove(&patient.find_type(QUOTA_TREE, ItemType::QGROUP_LIMIT));
            },
        ),
        on(
            Base::Quota,
            "a quota group in a group that does not exist",
            Kind::QuotaItem,
            Sees,
            |patient| {
                const NONE: u64 = 1 << 48 | 7;
                for (one, other) in [(FS_TREE, NONE), (NONE, FS_TREE)] {
                    patient.insert(
                        QUOTA_TREE,
                        Key::new(one, ItemType::QGROUP_RELATION, other),
                        &[],
                    );
                }
            },
        ),
        // btrfs check does not know simple quotas and refuses the image.
        on(Base::SimpleQuota, "the count of a simple quota", Kind::QuotaCount, Sees, |patient| {
            let info = patient.find_type(QUOTA_TREE, ItemType::QGROUP_INFO);
            patient.edit_as::<QgroupInfoItem>(&info, |item| item.rfer += 4096);
        }),
    ]
}
