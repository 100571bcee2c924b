//! Transactions on images of the kernel and of mkfs, judged by both checkers and by the kernel.

mod crashes;
mod cuts;
mod degraded;
mod devices;
mod extents;
mod full;
mod hostile;
mod jobs;
mod kernel_images;
mod manager;
mod minimum;
mod panics;
mod relocation;
mod replace;
mod snapshots;
mod support;
mod threads;
