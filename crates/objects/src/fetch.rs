//! Reading what has a checksum.

use std::ops::Range;

use bytes::Bytes;

use crate::codec::Malformed;
use crate::error::ObjectsError;
use crate::store::{Problem, Store, StoreError};

/// So often a part of an object is fetched that is not as it was written: the reply may be wrong,
/// and the object right.
pub(crate) const ATTEMPTS: u32 = 3;

/// So often objects are listed until each that a list names is there.
const MOST_LISTS: u32 = 20;

/// Lists objects and reads them. One that is not there has gone since, after another one had come in
/// its place, or a reply was wrong: the next list tells.
pub(crate) fn listed<T>(read: impl Fn() -> Result<T, ObjectsError>) -> Result<T, ObjectsError> {
    for _ in 1..MOST_LISTS {
        match read() {
            Err(ObjectsError::Store(StoreError { problem: Problem::NotFound, .. })) => {}
            result => return result,
        }
    }
    read()
}

/// Reads a part of an object. If `decode` does not understand it, fetches it again.
pub(crate) fn fetch<T>(
    store: &dyn Store,
    name: &str,
    range: Range<u64>,
    decode: impl FnMut(&Bytes) -> Result<T, Malformed>,
) -> Result<T, ObjectsError> {
    understood(store, name, || Ok(store.get(name, range.clone())?), decode)
}

/// Makes a request for an object. If `decode` does not understand the reply, makes it again.
pub(crate) fn understood<T, R>(
    store: &dyn Store,
    name: &str,
    request: impl Fn() -> Result<R, ObjectsError>,
    mut decode: impl FnMut(&R) -> Result<T, Malformed>,
) -> Result<T, ObjectsError> {
    let mut attempts = 1;
    loop {
        match decode(&request()?) {
            Ok(understood) => return Ok(understood),
            Err(why) if attempts < ATTEMPTS => {
                tracing::warn!("{}/{name}: {why}; it is fetched again", store.name());
                attempts += 1;
            }
            Err(why) => return Err(ObjectsError::damaged(store, name, &why)),
        }
    }
}
