//! One tree block: its bytes, and the checks that it passes on the way in.

use std::fmt;
use std::sync::Arc;

use larder_format::objectid::{TREE_LOG, TREE_RELOC, is_subvolume};
use larder_format::{Header, Key, Logical, Node, tree_check};
use zerocopy::FromBytes;

use crate::error::{Problem, TreeError};
use crate::expected::Expected;
use crate::store::BlockStore;

/// A verified tree block. A clone is another handle on the same bytes, which never change while
/// any caller can see them.
#[derive(Clone)]
pub struct Block {
    bytes: Arc<[u8]>,
}

impl Block {
    /// Reads a block from `store` and checks it against `expected`.
    pub(crate) fn read_from(
        store: &dyn BlockStore,
        expected: &Expected,
    ) -> Result<Self, TreeError> {
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, store.nodesize()).collect();
        let unshared = Arc::get_mut(&mut bytes).expect("no other thread has it yet");
        store
            .read(expected, unshared)
            .map_err(Problem::Read)
            .and_then(|()| verify(expected, unshared, store.tree_check().as_ref()))
            .map_err(|problem| TreeError::new(expected, problem))?;
        Ok(Self { bytes })
    }

    /// A block that no store has yet.
    pub(crate) fn new(bytes: Arc<[u8]>) -> Self {
        Self { bytes }
    }

    /// The bytes, for the thread that has the write lock. Other handles keep the block as it was.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.bytes)
    }

    /// Whether both are handles on one block in memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// The structure of the block.
    pub fn node(&self) -> Node<'_> {
        Node::from_checked(&self.bytes)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        Header::ref_from_prefix(&self.bytes).expect("a block is longer than its header").0
    }

    /// The whole block.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Logical address.
    pub fn logical(&self) -> Logical {
        self.header().bytenr()
    }

    /// Distance from the leaves.
    pub fn level(&self) -> u8 {
        self.header().level
    }

    /// The transaction that made this copy.
    pub fn generation(&self) -> u64 {
        self.header().generation.get()
    }

    /// The first key after those of the child at `slot`, where `upper` is that of this node;
    /// `None` at the right edge of the tree.
    pub(crate) fn child_upper(&self, slot: usize, upper: Option<Key>) -> Option<Key> {
        let node = self.node();
        if slot + 1 < node.nritems() { Some(node.key(slot + 1)) } else { upper }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header();
        f.debug_struct("Block")
            .field("logical", &header.bytenr())
            .field("level", &header.level)
            .field("nritems", &header.nritems.get())
            .field("generation", &header.generation.get())
            .finish_non_exhaustive()
    }
}

impl Expected {
    /// Checks the header and first key of a block.
    pub(crate) fn check(&self, node: Node<'_>) -> Result<(), Problem> {
        let header = node.header();
        let fields = [
            ("address", self.logical.0, header.bytenr.get()),
            ("generation", self.generation, header.generation.get()),
            ("level", self.level.into(), header.level.into()),
        ];
        for (field, expected, found) in fields {
            if expected != found {
                return Err(Problem::Mismatch { field, expected, found });
            }
        }
        let owner = header.owner.get();
        if !owner_fits(self.tree, owner) {
            return Err(Problem::Mismatch { field: "owner", expected: self.tree, found: owner });
        }
        match self.first_key {
            Some(expected) if node.first_key() != Some(expected) => {
                Err(Problem::FirstKey { expected, found: node.first_key() })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the keys of a block end below `upper`.
    pub(crate) fn check_upper(&self, block: &Block, upper: Option<Key>) -> Result<(), TreeError> {
        match (block.node().last_key(), upper) {
            (Some(last), Some(bound)) if last >= bound => {
                Err(TreeError::new(self, Problem::OutOfRange { last, bound }).with_upper(upper))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a block whose first owner is `owner` may hang in `tree`. Subvolumes share blocks among
/// each other, and other trees share none. Log and relocation trees have blocks of several owners.
fn owner_fits(tree: u64, owner: u64) -> bool {
    match tree {
        TREE_LOG | TREE_RELOC => true,
        _ if is_subvolume(tree) => is_subvolume(owner),
        _ => owner == tree,
    }
}

/// Checks a whole tree block: first structure, key order and item bounds, then the expectation of
/// its parent, then (with a `context`) whether such items can exist.
pub fn verify(
    expected: &Expected,
    bytes: &[u8],
    context: Option<&tree_check::Context>,
) -> Result<(), Problem> {
    let node = Node::parse(bytes)?;
    expected.check(node)?;
    let Some(context) = context else { return Ok(()) };
    tree_check::check_node(node, context).map_err(|error| Problem::Contents(Box::new(error)))
}
