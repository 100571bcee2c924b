//! Images that the kernel makes, and their specs.

mod event;
mod kernel_image;
mod spec;

pub use event::Event;
pub use kernel_image::KernelImage;
pub use spec::{Checkable, Checksum, Feature, ImageSpec, Profile, Quota, SpaceCache};
