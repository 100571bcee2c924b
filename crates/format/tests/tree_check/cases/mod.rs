//! Leaves that are sound or break one rule.

mod chunk;
mod dir;
mod extent;
mod file_extent;
mod inode;
mod other;
mod root;

use larder_format::{ItemType, Key, objectid};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::leaf::Item;

/// A leaf, and the expected verdict.
pub(crate) struct Case {
    pub(crate) name: String,
    /// The tree that owns the leaf: one without such items, so that the kernel does not fail on
    /// items that the checker accepts, or the top-level subvolume, which has rules of its own.
    pub(crate) owner: u64,
    pub(crate) items: Vec<Item>,
    /// A part of the expected problem; `None` for a sound leaf.
    pub(crate) problem: Option<&'static str>,
    /// The kernel's verdict.
    pub(crate) kernel: Kernel,
}

/// The kernel's verdict beside ours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    Agrees,
    /// It accepts, because it never checks such items when reading.
    Accepts,
}

impl Case {
    fn in_top_level(mut self) -> Self {
        self.owner = objectid::FS_TREE;
        self
    }

    /// Marks a rule that the kernel does not have.
    fn stricter_than_kernel(mut self) -> Self {
        self.kernel = Kernel::Accepts;
        self
    }
}

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let families = [
        inode::cases(),
        dir::cases(),
        file_extent::cases(),
        root::cases(),
        extent::cases(),
        chunk::cases(),
        other::cases(),
    ];
    families.into_iter().flatten().collect()
}

fn sound(name: &str, items: impl Into<Vec<Item>>) -> Case {
    let name = format!("sound: {name}");
    let owner = objectid::CSUM_TREE;
    Case { name, owner, items: items.into(), problem: None, kernel: Kernel::Agrees }
}

fn wrong(problem: &'static str, items: impl Into<Vec<Item>>) -> Case {
    let name = format!("wrong: {problem}");
    Case { name, problem: Some(problem), ..sound("", items) }
}

fn key(objectid: u64, item_type: ItemType, offset: u64) -> Key {
    Key::new(objectid, item_type, offset)
}

/// The bytes of a structure of zeros, except for the fields that `edit` sets.
fn bytes<T: FromZeros + IntoBytes + Immutable>(edit: impl FnOnce(&mut T)) -> Vec<u8> {
    let mut item = T::new_zeroed();
    edit(&mut item);
    item.as_bytes().to_vec()
}
