//! The object with the slots: lines of text.
//!
//! ```text
//!   larder keys 1
//!   ID CREATED LOG2_N R P SALT NAME NONCE SEALED        for each slot
//!   sha256 CHECKSUM                                     of the lines before
//! ```
//! A slot's key is `scrypt(secret, SALT, N, R, P)`, 32 bytes. `SEALED` is the data key, encrypted
//! with it by XChaCha20-Poly1305, and the tag; what stands before `NONCE` and its space is
//! associated data. `NAME` is a word of the user, or `-`. Bytes are written as two digits each,
//! `CREATED` in seconds since 1970.

use bytes::Bytes;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, Tag, XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{DataKey, KEY_BYTES, random};
use crate::codec::Malformed;
use crate::error::ObjectsError;
use crate::hex;

const FIRST_LINE: &str = "larder keys 1\n";
const MAGIC: &[u8] = b"larder keys ";
const CHECKSUM: &str = "sha256 ";

/// More slots than that make a reader with a wrong secret wait too long.
pub(super) const MOST_SLOTS: usize = 16;

/// The costs of new slots: 64 MiB of memory, and a fraction of a second.
const COSTS: Costs = Costs { log_n: 16, r: 8, p: 1 };

const NO_NAME: &str = "-";
const MOST_NAME_BYTES: usize = 64;

/// What it costs to try a secret, as scrypt counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Costs {
    log_n: u8,
    r: u32,
    p: u32,
}

/// A sealed copy of the data key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    id: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    costs: Costs,
    salt: [u8; 32],
    name: String,
    nonce: [u8; 24],
    sealed: [u8; KEY_BYTES],
    tag: [u8; 16],
}

impl Slot {
    pub(super) fn new(
        key: &DataKey,
        secret: &[u8],
        name: &str,
        created: u64,
    ) -> Result<Self, ObjectsError> {
        let is_word = |name: &str| name.chars().all(|it| !it.is_whitespace() && !it.is_control());
        if !is_word(name) || name.len() > MOST_NAME_BYTES || name == NO_NAME {
            return Err(ObjectsError::Setting {
                name: "--name",
                why: "a key's name is one word of 64 bytes at most, and not '-'".to_owned(),
            });
        }
        let mut slot = Self {
            id: hex::text(&random::<4>()),
            created,
            costs: COSTS,
            salt: random(),
            name: name.to_owned(),
            nonce: random(),
            sealed: *key.0,
            tag: [0; 16],
        };
        let cipher = slot.cipher(secret).expect("the costs are possible");
        let (nonce, about) = (XNonce::from(slot.nonce), slot.about());
        let sealed = slot.sealed.as_mut_slice().into();
        let tag = cipher.encrypt_inout_detached(&nonce, about.as_bytes(), sealed);
        slot.tag = tag.expect("a key is short").into();
        Ok(slot)
    }

    /// Its random name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The user's name for it, or nothing.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What of it is not sealed.
    fn about(&self) -> String {
        let Self { id, created, costs: Costs { log_n, r, p }, salt, name, .. } = self;
        let name = if name.is_empty() { NO_NAME } else { name };
        format!("{id} {created} {log_n} {r} {p} {} {name}", hex::text(salt))
    }

    fn line(&self) -> String {
        let Self { nonce, sealed, tag, .. } = self;
        let (nonce, sealed) = (hex::text(nonce), hex::text(&[&sealed[..], tag].concat()));
        format!("{} {nonce} {sealed}\n", self.about())
    }

    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<_> = line.split(' ').collect();
        let [id, created, log_n, r, p, salt, name, nonce, sealed] = fields[..] else { return None };
        let sealed: [u8; KEY_BYTES + 16] = hex::bytes(sealed)?;
        let slot = Self {
            id: id.to_owned(),
            created: created.parse().ok()?,
            costs: Costs { log_n: log_n.parse().ok()?, r: r.parse().ok()?, p: p.parse().ok()? },
            salt: hex::bytes(salt)?,
            name: if name == NO_NAME { String::new() } else { name.to_owned() },
            nonce: hex::bytes(nonce)?,
            sealed: *sealed.first_chunk()?,
            tag: *sealed.last_chunk()?,
        };
        let Costs { log_n, r, p } = slot.costs;
        // A store could make readers work for hours, or take all memory.
        let is_bearable = log_n <= 18 && (1..=8).contains(&r) && (1..=4).contains(&p);
        (is_bearable && hex::bytes::<4>(id).is_some() && slot.line().trim_end() == line)
            .then_some(slot)
    }

    fn cipher(&self, secret: &[u8]) -> Option<XChaCha20Poly1305> {
        let Costs { log_n, r, p } = self.costs;
        let params = scrypt::Params::new(log_n, r, p).ok()?;
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        scrypt::scrypt(secret, &self.salt, &params, key.as_mut_slice()).ok()?;
        Some(XChaCha20Poly1305::new((&*key).into()))
    }

    fn unlock(&self, secret: &[u8]) -> Option<DataKey> {
        let mut key = Zeroizing::new(self.sealed);
        let cipher = self.cipher(secret)?;
        let (nonce, tag) = (XNonce::from(self.nonce), Tag::from(self.tag));
        let content = key.as_mut_slice().into();
        cipher.decrypt_inout_detached(&nonce, self.about().as_bytes(), content, &tag).ok()?;
        Some(DataKey(key))
    }
}

/// All slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ring(pub(super) Vec<Slot>);

impl Ring {
    /// Whether an object is meant to be one.
    pub(super) fn is_one(content: &[u8]) -> bool {
        content.starts_with(MAGIC)
    }

    pub(super) fn encode(&self) -> Bytes {
        let lines = self.0.iter().map(Slot::line);
        let text: String = std::iter::once(FIRST_LINE.to_owned()).chain(lines).collect();
        let checksum = hex::text(&Sha256::digest(&text));
        format!("{text}{CHECKSUM}{checksum}\n").into()
    }

    pub(super) fn decode(content: &[u8]) -> Result<Self, Malformed> {
        let damaged = Malformed("the list of keys is damaged");
        let text = str::from_utf8(content).map_err(|_| damaged)?;
        let (lines, checksum) = text.rsplit_once(CHECKSUM).ok_or(damaged)?;
        if checksum.trim_end() != hex::text(&Sha256::digest(lines)) {
            return Err(damaged);
        }
        let slots = lines
            .strip_prefix(FIRST_LINE)
            .ok_or(Malformed("a newer version of larder wrote the list of keys"))?;
        let slots: Option<Vec<_>> = slots.lines().map(Slot::parse).collect();
        let slots = slots.filter(|slots| (1..=MOST_SLOTS).contains(&slots.len()));
        slots.map(Self).ok_or(Malformed("the list of keys has a key that larder does not make"))
    }

    /// The data key, and the position of the first slot that `secret` opens.
    pub(super) fn unlock(&self, secret: &[u8]) -> Option<(DataKey, usize)> {
        self.0.iter().enumerate().find_map(|(at, slot)| Some((slot.unlock(secret)?, at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(key: &DataKey) -> Ring {
        let slot = |secret: &[u8], name| Slot::new(key, secret, name, 1_800_000_000).unwrap();
        Ring(vec![slot(b"bread", ""), slot(b"butter", "laptop")])
    }

    #[test]
    fn each_secret_opens_its_slot_and_no_other_does() {
        let key = DataKey::random();
        let encoded = ring(&key).encode();
        assert!(Ring::is_one(&encoded));
        let ring = Ring::decode(&encoded).unwrap();
        assert_eq!(ring.encode(), encoded);
        assert_eq!(ring.unlock(b"bread"), Some((key.clone(), 0)));
        assert_eq!(ring.unlock(b"butter"), Some((key, 1)));
        assert_eq!(ring.unlock(b"jam"), None);
        let text = String::from_utf8(encoded.to_vec()).unwrap();
        assert!(text.contains(" laptop ") && !text.contains("butter"), "{text}");
    }

    #[test]
    fn what_a_slot_says_of_itself_is_sealed_too() {
        let mut ring = ring(&DataKey::random());
        ring.0[1].name = "server".to_owned();
        assert_eq!(ring.unlock(b"butter"), None);
    }

    #[test]
    fn impossible_lists_are_refused() {
        let key = DataKey::random();
        let encoded = ring(&key).encode();
        for at in [0, 20, encoded.len() / 2, encoded.len() - 2] {
            let mut changed = encoded.to_vec();
            changed[at] ^= 1;
            assert!(Ring::decode(&changed).is_err(), "byte {at}");
        }
        assert!(Ring::decode(&[0xff; 100]).is_err());
        assert!(Ring::decode(&Ring(Vec::new()).encode()).is_err());
        for costs in
            [Costs { log_n: 19, ..COSTS }, Costs { r: 9, ..COSTS }, Costs { p: 0, ..COSTS }]
        {
            let mut ring = ring(&key);
            ring.0[0].costs = costs;
            assert!(Ring::decode(&ring.encode()).is_err(), "{costs:?}");
        }
        for name in ["two words", "-", "line\n"] {
            assert!(Slot::new(&key, b"bread", name, 0).is_err(), "{name}");
        }
    }
}
