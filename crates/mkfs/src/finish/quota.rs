//! The quota tree: a quota group for each subvolume. Subvolumes share no extents, so all that one
//! refers to is exclusive.

use larder_format::item::{QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, qgroup_status_flags};
use larder_format::{ItemType, Key};
use zerocopy::{FromZeros, IntoBytes};

use super::{Layout, Plan};
use crate::MkfsError;
use crate::settings::GENERATION;
use crate::tree::Emit;

pub(super) fn items(layout: &Layout<'_>, _: &Plan, emit: &mut Emit<'_>) -> Result<(), MkfsError> {
    let status = QgroupStatusItem {
        version: 1.into(),
        generation: GENERATION.into(),
        flags: qgroup_status_flags::ON.into(),
        rescan: 0.into(),
    };
    emit(Key::new(0, ItemType::QGROUP_STATUS, 0), status.as_bytes())?;
    let node_size = layout.settings.node_size as u64;
    let subvolumes = &layout.source.subvolumes;
    for (subvolume, filled) in subvolumes.iter().zip(&layout.earlier.subvolumes) {
        let bytes = filled.root.blocks * node_size + filled.data_bytes;
        let info = QgroupInfoItem {
            generation: GENERATION.into(),
            rfer: bytes.into(),
            rfer_cmpr: bytes.into(),
            excl: bytes.into(),
            excl_cmpr: bytes.into(),
        };
        emit(Key::new(0, ItemType::QGROUP_INFO, subvolume.id), info.as_bytes())?;
    }
    subvolumes.iter().try_for_each(|subvolume| {
        let key = Key::new(0, ItemType::QGROUP_LIMIT, subvolume.id);
        emit(key, QgroupLimitItem::new_zeroed().as_bytes())
    })
}
