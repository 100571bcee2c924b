//! Images that the kernel made: what to make, and making it.

mod kernel_image;
mod spec;

pub use kernel_image::KernelImage;
pub use spec::{Checksum, Feature, ImageSpec, Profile, Quota, SpaceCache};
