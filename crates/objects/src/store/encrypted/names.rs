//! Names of objects. Parts of streams and their indexes have a checksum of their content at the end
//! of their names, by which a store could tell what they hold: it is sealed.
//!
//! ```text
//!   FOLDER/…-CHECKSUM  becomes  FOLDER/…-SEALED:  nonce 24 | checksum 32, encrypted | tag 16
//! ```
//! The nonce is the beginning of the HMAC-SHA256 of the whole name, so that a name always becomes
//! the same one. What stands before the checksum is associated data. Other names stay as they are:
//! they consist of random numbers and of numbers in order.

use std::borrow::Cow;
use std::fmt;

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};

use crate::hex;
use crate::keys::hmac;

const CHECKSUM_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// Seals and opens names.
pub(super) struct Names {
    pub(super) cipher: XChaCha20Poly1305,
    pub(super) nonces: [u8; 32],
}

impl Names {
    /// The name that the object `name` has in the store.
    pub(super) fn sealed<'n>(&self, name: &'n str) -> Cow<'n, str> {
        let Some((before, mut checksum)) = parsed::<CHECKSUM_BYTES>(name) else {
            return Cow::Borrowed(name);
        };
        let nonce = hmac(&self.nonces, name.as_bytes());
        let nonce: [u8; NONCE_BYTES] = nonce[..NONCE_BYTES].try_into().expect("32 bytes");
        let tag = self.cipher.encrypt_inout_detached(
            &XNonce::from(nonce),
            before.as_bytes(),
            checksum.as_mut_slice().into(),
        );
        let tag = tag.expect("a checksum is short");
        let sealed = [&nonce[..], &checksum, &tag].concat();
        Cow::Owned(format!("{before}-{}", hex::text(&sealed)))
    }

    /// The object that has the name `name` in the store. Other files may lie there, too.
    pub(super) fn opened(&self, name: String) -> String {
        self.try_open(&name).unwrap_or(name)
    }

    fn try_open(&self, name: &str) -> Option<String> {
        const LEN: usize = NONCE_BYTES + CHECKSUM_BYTES + TAG_BYTES;
        let (before, sealed) = parsed::<LEN>(name)?;
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let (checksum, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        let mut checksum = checksum.to_vec();
        self.cipher
            .decrypt_inout_detached(
                &XNonce::from(*nonce),
                before.as_bytes(),
                checksum.as_mut_slice().into(),
                &Tag::from(*tag),
            )
            .ok()?;
        Some(format!("{before}-{}", hex::text(&checksum)))
    }
}

/// The bytes at the end of a name, and what stands before them.
fn parsed<const LEN: usize>(name: &str) -> Option<(&str, [u8; LEN])> {
    let (before, digits) = name.rsplit_once('-')?;
    Some((before, hex::bytes(digits)?))
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

#[cfg(test)]
mod tests {
    use chacha20poly1305::KeyInit;

    use super::*;

    fn names(key: u8) -> Names {
        Names { cipher: XChaCha20Poly1305::new(&[key; 32].into()), nonces: [key + 1; 32] }
    }

    #[test]
    fn a_checksum_is_hidden_and_found_again() {
        let checksum = "5f".repeat(CHECKSUM_BYTES);
        let name = format!("streams/0000000000000007/0000000003-{checksum}");
        let sealed = names(1).sealed(&name).into_owned();
        assert!(sealed.starts_with("streams/0000000000000007/0000000003-"));
        assert!(!sealed.contains(&checksum[..8]), "{sealed}");
        assert_eq!(names(1).sealed(&name), sealed);
        assert_eq!(names(1).opened(sealed.clone()), name);
        // Neither another key nor another place opens it.
        assert_eq!(names(5).opened(sealed.clone()), sealed);
        let moved = sealed.replace("0000000003", "0000000004");
        assert_eq!(names(1).opened(moved.clone()), moved);
        let other = names(1).sealed(&name.replace("0000000003", "0000000004")).into_owned();
        assert_ne!(other[other.len() - 144..], sealed[sealed.len() - 144..]);
    }

    #[test]
    fn numbers_stay_as_they_are() {
        for name in ["manifest", "segments/00000001-0000abcd", "streams/x-ü", "probe-1-2", "-"] {
            assert_eq!(names(1).sealed(name), name);
            assert_eq!(names(1).opened(name.to_owned()), name);
        }
    }
}
