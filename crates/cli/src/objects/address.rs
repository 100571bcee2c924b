//! Addresses of objects as operands.

use std::path::Path;
use std::sync::Arc;

use larder_objects::{Address, ObjectsError, Store};
use larder_platform::errno::in_words;

use super::directory::url_of;

/// The store there.
pub fn store(address: &Address) -> anyhow::Result<Arc<dyn Store>> {
    Ok(address.connect()?.0)
}

/// Reads an address, perhaps with a state: a URL, or the path of a directory.
pub fn parse_address_with_state(text: &str) -> Result<Address, String> {
    let parse = |text: &str| text.parse().map_err(|error: ObjectsError| error.to_string());
    if text.is_empty() || text.contains("://") {
        return parse(text);
    }
    // A name may contain what begins a state elsewhere.
    let (path, state) = match text.rsplit_once('@') {
        Some((path, state)) if !state.contains('/') && !Path::new(text).exists() => {
            (path, format!("@{state}"))
        }
        _ => (text, String::new()),
    };
    let url = url_of(Path::new(path)).map_err(|error| in_words(&error))?;
    parse(&format!("{url}{state}"))
}

/// Reads an address without a state.
pub fn parse_address(text: &str) -> Result<Address, String> {
    let address = parse_address_with_state(text)?;
    match address.state {
        None => Ok(address),
        Some(_) => Err("it names a state; give the URL without '@' and what follows".to_owned()),
    }
}
