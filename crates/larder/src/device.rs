//! Devices, for programs that open a file system from something other than paths.

pub use larder_device::{
    Access, Device, DeviceError, FileDevice, InUse, KeptState, MemoryDevice, Operation, Trouble,
    Window,
};
pub use larder_image::Place;
