//! LZO1X against another implementation, and the framing's rules.

use proptest::prelude::*;

use super::*;
use crate::compression::tests::{contents, noise};

const SECTOR_BYTES: usize = 4096;

fn segment(input: &[u8]) -> Vec<u8> {
    let mut output = vec![0; longest_segment(input.len())];
    let len = encode::Matcher::new().encode(input, &mut output).unwrap();
    output.truncate(len);
    output
}

/// A regular extent of one segment per sector, with wrong lengths if asked for.
fn frame(segments: &[Vec<u8>], total_error: i32, extent_sectors: usize) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH_BYTES];
    for segment in segments {
        bytes.resize(next_length_offset(bytes.len(), SECTOR_BYTES), 0);
        bytes.extend((segment.len() as u32).to_le_bytes());
        bytes.extend(segment);
    }
    let total = (bytes.len() as u32).wrapping_add_signed(total_error);
    bytes[..LENGTH_BYTES].copy_from_slice(&total.to_le_bytes());
    bytes.resize(extent_sectors * SECTOR_BYTES, 0);
    bytes
}

fn decode_all(extent: &[u8]) -> Result<Vec<u8>, CompressionError> {
    let mut output = vec![0; 128 * 1024];
    let len = decode_regular(extent, &mut output, SECTOR_BYTES)?;
    output.truncate(len);
    Ok(output)
}

fn assert_corrupt(extent: &[u8], expected: &str) {
    match decode_all(extent) {
        Err(CompressionError::Corrupt { reason, .. }) => assert_eq!(reason, expected),
        other => panic!("{expected}: {other:?}"),
    }
}

proptest! {
    #[test]
    fn another_decoder_reads_encoded_streams(input in contents(65_536)) {
        let mut output = vec![0; input.len()];
        prop_assert_eq!(lzokay::decompress::decompress(&segment(&input), &mut output), Ok(input.len()));
        prop_assert!(output == input);
    }

    #[test]
    fn streams_of_another_encoder_are_decoded(input in contents(65_536)) {
        let stream = lzokay::compress::compress(&input).unwrap();
        let mut output = vec![0; input.len()];
        match decode::decode(&stream, &mut output) {
            Ok(Progress::Ended { produced_bytes }) => prop_assert_eq!(produced_bytes, input.len()),
            _ => prop_assert!(false, "did not end"),
        }
        prop_assert!(output == input);
    }

    /// On any damaged stream both decoders agree: the same bytes, or no stream at all.
    #[test]
    fn both_decoders_judge_damage_alike(
        input in contents(3_000),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut stream = segment(&input);
        for (index, byte) in damage {
            *index.get_mut(&mut stream) = byte;
        }
        let (mut ours, mut theirs) = (vec![0; 8192], vec![0; 8192]);
        let our_len = match decode::decode(&stream, &mut ours) {
            Ok(Progress::Ended { produced_bytes }) => Some(produced_bytes),
            _ => None,
        };
        let their_len = lzokay::decompress::decompress(&stream, &mut theirs).ok();
        prop_assert_eq!(our_len, their_len);
        prop_assert!(our_len.is_none_or(|len| ours[..len] == theirs[..len]));
    }
}

#[test]
fn all_match_lengths_and_distances_come_back() {
    let filler = noise(1, 65_536);
    for distance in [1, 2, 7, 8, 9, 2048, 2049, 16384, 16385, 32767, 32768, 32769, 49151, 49152] {
        for len in [4, 8, 9, 10, 33, 34, 263, 264, 265, 289, 544, 1000] {
            for literals in [0, 1, 3, 4, 18, 19, 273, 274] {
                let mut input = filler[..distance].to_vec();
                for at in 0..len {
                    input.push(input[at]);
                }
                input.extend(&filler[60_000..60_000 + literals]);
                input.truncate(65_536);
                let mut output = vec![0; input.len()];
                let ended = decode::decode(&segment(&input), &mut output);
                assert!(matches!(ended, Ok(Progress::Ended { .. })), "{distance} {len} {literals}");
                assert!(output == input, "{distance} {len} {literals}");
            }
        }
    }
}

#[test]
fn lengths_never_cross_a_sector_boundary() {
    let mut paddings_seen = [false; LENGTH_BYTES];
    // Each sector of noise takes a little more than a sector; the noise of the next one then
    // determines where its segment ends.
    for noisy in 3300..3900 {
        let mut input = noise(2, 16 * SECTOR_BYTES + noisy);
        input.resize(18 * SECTOR_BYTES, 0);
        let mut output = vec![0xa5; 2 * input.len()];
        let len = Encoder::new().encode(&input, &mut output, SECTOR_BYTES).unwrap();
        let mut at = LENGTH_BYTES;
        for _ in 0..18 {
            let padding = at.next_multiple_of(SECTOR_BYTES) - at;
            if padding < LENGTH_BYTES {
                paddings_seen[padding] = true;
                assert!(output[at..at + padding].iter().all(|&byte| byte == 0));
                at += padding;
            }
            at += LENGTH_BYTES + length_at(&output, at).unwrap();
        }
        assert_eq!(at, len);
        output.truncate(len.next_multiple_of(SECTOR_BYTES));
        assert!(decode_all(&output).unwrap() == input);
    }
    assert_eq!(paddings_seen, [true; LENGTH_BYTES]);
}

#[test]
fn framing_is_checked() {
    let first = segment(&noise(3, SECTOR_BYTES));
    let second = segment(&[5; SECTOR_BYTES]);
    let both = [first.clone(), second.clone()];
    assert!(decode_all(&frame(&both, 0, 2)).is_ok());
    assert_corrupt(&frame(&both, 0, 3), "total length leaves sectors unused");
    assert_corrupt(&frame(&both, 8192, 2), "total length exceeds the extent");
    // The zeros after the last segment are no segment.
    let empty = frame(&both, 4, 2);
    assert_corrupt(&empty, "segment ends within an instruction");

    let mut cut = second.clone();
    cut.pop();
    assert_corrupt(&frame(&[cut], 0, 1), "segment ends within an instruction");
    let mut longer = second.clone();
    longer.push(0);
    assert_corrupt(&frame(&[longer], 0, 1), "segment continues after its end mark");
    assert_corrupt(&frame(&[vec![0; 5000]], 0, 2), "segment is longer than a sector can need");
    let bomb = segment(&vec![0; 65_536]);
    assert_corrupt(&frame(&[bomb], 0, 1), "segment decodes to more than a sector");
    assert_corrupt(&frame(&[vec![17, 1, 0, 0, 0]], 0, 1), "unsupported LZO bitstream version");
    assert_corrupt(
        &frame(&[vec![18, 1, 64, 200, 0x11, 0, 0]], 0, 1),
        "match reaches before the start of the sector",
    );
    assert_corrupt(&frame(&[vec![18, 1, 0x12, 0, 0]], 0, 1), "invalid end mark");
    assert_eq!(decode_all(&frame(&[vec![0x11, 0, 0]], 0, 1)), Ok(Vec::new()));
}

#[test]
fn inline_lengths_are_exact() {
    let segment = segment(&[5; 1000]);
    let extent = |total: usize, len: usize| {
        let [total, len] = [total as u32, len as u32].map(u32::to_le_bytes);
        [&total[..], &len, &segment].concat()
    };
    let mut output = [0; 1000];
    let (total, len) = (segment.len() + 8, segment.len());
    assert_eq!(decode_inline(&extent(total, len), &mut output, SECTOR_BYTES), Ok(1000));
    assert_eq!(output, [5; 1000]);
    for (total, len) in [(total - 1, len), (total + 1, len), (total, len - 1), (total, len + 1)] {
        let result = decode_inline(&extent(total, len), &mut output, SECTOR_BYTES);
        assert!(matches!(result, Err(CompressionError::Corrupt { .. })), "{result:?}");
    }
}
