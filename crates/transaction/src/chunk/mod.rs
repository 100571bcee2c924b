//! Chunks: allocating new ones on the devices, and their items in the trees.

mod devices;
mod items;
mod plan;

pub use devices::{DeviceSpace, Devices};
pub use items::{ChunkTrees, chunk_bytes, insert_chunk, remove_chunk, system_chunk_array};
pub use plan::{Limits, Plan, plan};
