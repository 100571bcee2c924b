//! Where new chunks go on devices: the one planner, of new file systems and of those in use.
//!
//! A caller has [`Devices`] with the space that is taken, and chooses [`Places`] for a chunk of a
//! profile. It decides how long the stripes are, and makes the chunk. Taking its space is the
//! caller's, so that plans can be made on copies.

mod devices;
mod limits;
mod moves;
mod places;

pub use devices::{DeviceSpace, Devices};
pub use limits::{
    Limits, MAX_DATA_BYTES, MAX_STRIPE_BYTES, max_metadata_bytes, max_stripes, spare_system_blocks,
};
pub use moves::moved;
pub use places::{Places, Plan};
