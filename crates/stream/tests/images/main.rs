//! Streams between the kernel and Larder, from images and into them.

mod checkpoints;
mod gathered;
mod hostile;
mod kernel_streams;
mod random;
mod receive;
mod rewrite;
mod send;
mod support;
