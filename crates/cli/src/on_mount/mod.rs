//! Changes on a mount of larder. Its server makes them for this process, many at a time, which is
//! faster than one call after the other through the kernel.

mod attributes;
mod changes;
mod destination;
mod each;
mod mount_path;
mod remove;
mod walk;

pub use attributes::{Present, change_attributes};
pub use changes::OnMount;
pub use destination::OntoMount;
pub use each::with_each;
pub use mount_path::{all_resolved, is_ours, resolved};
pub use remove::remove;
pub use walk::{Walk, count_bytes};
