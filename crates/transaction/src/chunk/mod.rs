//! Chunks: where on the devices a new one goes, and what a chunk is in the trees.

mod devices;
mod items;
mod plan;

pub use devices::{DeviceSpace, Devices};
pub use items::{ChunkTrees, chunk_bytes, insert_chunk, remove_chunk, system_chunk_array};
pub use plan::{Limits, Plan, plan};
