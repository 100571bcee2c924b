//! The first two blocks of a journal: to whom it belongs, and where its records begin.
//!
//! A thread writes one of them and leaves the other: a torn one is older than the other by a step.

use crate::codec::{Decoder, Encoder, Malformed};

/// The size of each of the two.
pub(super) const BLOCK: u64 = 4096;

/// Where records begin.
pub(super) const RECORDS: u64 = 2 * BLOCK;

pub(super) const MAGIC: &[u8; 8] = b"LarderOJ";
const VERSION: u64 = 1;

/// So many claims are kept, and that of the writer that the store names.
const MOST_CLAIMS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The number of this header: the last one counts.
    pub(super) number: u64,
    /// The device's.
    pub(super) uuid: [u8; 16],
    /// How much room records have.
    pub(super) area: u64,
    /// The first record that the store may lack.
    pub(super) start: u64,
    /// The chain of that record.
    pub(super) chain: u64,
    /// The state of the device that the records change.
    pub(super) state: u64,
    /// The writers that have used this journal, or were about to.
    pub(super) claims: Vec<[u8; 16]>,
}

impl Header {
    /// Adds a writer, which follows `before`.
    pub(super) fn claim(&mut self, writer: [u8; 16], before: &[u8; 16]) {
        while self.claims.len() >= MOST_CLAIMS {
            let Some(at) = self.claims.iter().position(|it| it != before) else { break };
            self.claims.remove(at);
        }
        self.claims.push(writer);
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.number(VERSION);
        to.number(self.number);
        to.raw(&self.uuid);
        for number in [self.area, self.start, self.chain, self.state] {
            to.number(number);
        }
        to.list(&self.claims, |to, claim| to.raw(claim));
        let sealed = to.sealed();
        let mut block = MAGIC.to_vec();
        block.extend_from_slice(&(sealed.len() as u32).to_le_bytes());
        block.extend_from_slice(&sealed);
        block.resize(BLOCK as usize, 0);
        block
    }

    pub(super) fn decode(block: &[u8]) -> Result<Self, Malformed> {
        let rest = block.strip_prefix(MAGIC).ok_or(Malformed("it is no journal of larder"))?;
        let (len, rest) = rest.split_first_chunk().ok_or(Malformed("it is cut off"))?;
        let sealed = rest.get(..u32::from_le_bytes(*len) as usize);
        let mut from = Decoder::unsealed(sealed.ok_or(Malformed("it is cut off"))?)?;
        if from.number()? != VERSION {
            return Err(Malformed("a newer version of larder wrote it"));
        }
        let header = Self {
            number: from.number()?,
            uuid: from.array()?,
            area: from.number()?,
            start: from.number()?,
            chain: from.number()?,
            state: from.number()?,
            claims: from.list(Decoder::array)?,
        };
        from.end()?;
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_and_keeps_the_claim_that_counts() {
        let mut header = Header {
            number: 3,
            uuid: [7; 16],
            area: 1 << 30,
            start: 512,
            chain: u64::MAX,
            state: 9,
            claims: Vec::new(),
        };
        for claim in 0..200 {
            header.claim([claim; 16], &[5; 16]);
            assert!(claim < 5 || header.claims.contains(&[5; 16]));
            assert_eq!(Header::decode(&header.encode()), Ok(header.clone()));
        }
        assert!(header.claims.contains(&[199; 16]) && !header.claims.contains(&[6; 16]));
        let block = header.encode();
        for at in 0..600 {
            let mut wrong = block.clone();
            wrong[at] ^= 4;
            assert!(Header::decode(&wrong).is_err(), "byte {at}");
        }
    }
}
