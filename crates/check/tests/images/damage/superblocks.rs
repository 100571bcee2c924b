//! Superblocks.

use larder_check::Kind;
use larder_format::objectid::ROOT_TREE;
use larder_format::superblock::{OFFSETS, SUPER_FLAG_ERROR};

use super::Progs::{DoesNot, Sees};
use super::{Base, Wound, on, plain};

pub(super) fn wounds() -> Vec<Wound> {
    vec![
        plain("the second superblock is something else", Kind::SuperblockBad, DoesNot, |patient| {
            patient.write(0, OFFSETS[1].0, &[0x5a; 4096]);
        }),
        plain("the second superblock is old", Kind::SuperblocksDisagree, DoesNot, |patient| {
            patient.edit_superblock_copy(1, |superblock| {
                superblock.generation = (superblock.generation.get() - 2).into();
            });
        }),
        plain(
            "the second superblock is another's",
            Kind::SuperblocksDisagree,
            DoesNot,
            |patient| {
                patient.edit_superblock_copy(1, |superblock| {
                    superblock.generation = (superblock.generation.get() - 1).into();
                    superblock.fsid[0] ^= 1;
                });
            },
        ),
        plain("the second superblock has another label", Kind::SuperblocksDisagree, DoesNot, |p| {
            p.edit_superblock_copy(1, |superblock| superblock.label[0] = b'x');
        }),
        on(
            Base::Raid1,
            "a device that missed the last commit",
            Kind::DeviceOutOfDate,
            Sees,
            |patient| {
                patient.put_one_commit_back(1);
                patient.lose_copy(1, patient.root(ROOT_TREE));
            },
        ),
        plain("bytes_used of the superblock", Kind::SuperblockBytesUsed, Sees, |patient| {
            patient.edit_superblocks(|superblock| superblock.bytes_used += 4096);
        }),
        plain("total_bytes of the superblock", Kind::SuperblockTotals, DoesNot, |patient| {
            patient.edit_superblocks(|superblock| superblock.total_bytes += 4096);
        }),
        plain("a field of a system chunk", Kind::SystemChunkArray, DoesNot, |patient| {
            // Its preferred I/O width: after the key and five fields.
            patient.edit_superblocks(|superblock| superblock.sys_chunk_array[17 + 36] ^= 1);
        }),
        plain("a label without an end", Kind::SuperblockField, DoesNot, |patient| {
            patient.edit_superblocks(|superblock| superblock.label.fill(b'x'));
        }),
        plain("the uuid tree's generation lies ahead", Kind::SuperblockField, DoesNot, |patient| {
            patient.edit_superblocks(|superblock| {
                superblock.uuid_tree_generation = superblock.generation;
                superblock.uuid_tree_generation += 1;
            });
        }),
        plain("the current backup root", Kind::BackupRoot, DoesNot, |patient| {
            patient.edit_superblocks(|superblock| {
                let generation = superblock.generation;
                for backup in &mut superblock.super_roots {
                    if backup.tree_root_gen == generation {
                        backup.tree_root += 4096;
                    }
                }
            });
        }),
        plain("the kernel noted damage", Kind::SuperblockField, DoesNot, |patient| {
            patient.edit_superblocks(|superblock| superblock.flags |= SUPER_FLAG_ERROR);
        }),
        plain("bytes_used of the device in the superblock", Kind::DeviceItem, DoesNot, |patient| {
            patient.edit_superblocks(|superblock| superblock.dev_item.bytes_used += 4096);
        }),
    ]
}
