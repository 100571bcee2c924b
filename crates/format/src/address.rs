//! Address types: a logical, a physical and a file offset are never mixed up.

use std::fmt;

macro_rules! byte_address {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The address `bytes` further on, or `None` past the end of the 64-bit space.
            pub fn checked_add(self, bytes: u64) -> Option<Self> {
                self.0.checked_add(bytes).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

byte_address! {
    /// A byte address in the file system's logical address space, which chunks map to devices.
    Logical
}
byte_address! {
    /// A byte offset on one device.
    Physical
}
byte_address! {
    /// A byte offset in a file.
    FileOffset
}
