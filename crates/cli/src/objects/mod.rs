//! File systems on object storage, as far as several commands know of them.

mod address;
mod create;
mod directory;
mod prices;

pub use address::{parse_address, parse_address_with_state, store};
pub use create::{create, create_at, encrypt};
pub use directory::url_at;
pub use prices::{Prices, values};
