//! The file system as a whole.

pub(crate) mod balance;
pub(crate) mod cleaning;
pub(crate) mod commit;
pub(crate) mod devices;
pub(crate) mod health;
pub(crate) mod kept_state;
pub(crate) mod minimum;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod quota;
pub(crate) mod replace;
pub(crate) mod resolve;
pub(crate) mod scrub;
pub(crate) mod settings;
pub(crate) mod sharing;
pub(crate) mod space;
pub(crate) mod spaces;
pub(crate) mod tree_items;
