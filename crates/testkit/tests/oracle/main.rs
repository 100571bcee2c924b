//! The oracle itself: its images, manifests and guards.

mod guards;
mod images;
mod manifests;
