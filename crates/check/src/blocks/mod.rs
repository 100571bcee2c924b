//! Tree blocks: reading them, the forest that they form, and walks of it.

pub(crate) mod forest;
pub(crate) mod reader;
pub(crate) mod stream;

pub(crate) use forest::{BlockFacts, BlockId, DropProgress, Forest, State, TreeRoot};
pub(crate) use reader::{BlockReader, ExpectedBlock};
pub(crate) use stream::{Item, find_item, find_item_from, for_each_item, for_each_item_again};
