//! Images that the kernel made: what to make, and making it.

mod event;
mod kernel_image;
mod spec;

pub use event::Event;
pub use kernel_image::KernelImage;
pub use spec::{Checkable, Checksum, Feature, ImageSpec, Profile, Quota, SpaceCache};
