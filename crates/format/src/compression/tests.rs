//! Round trips, limits, and hostile streams, for every algorithm.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const SECTOR_SIZES: [u32; 3] = [4096, 16384, 65536];

/// Reproducible bytes without any pattern (SplitMix64).
pub(super) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    });
    words.flat_map(u64::to_le_bytes).take(len).collect()
}

/// Content of files, in pieces that compressors treat differently.
pub(super) fn contents(max_len: usize) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u64>(), 1..20_000usize).prop_map(|(seed, len)| noise(seed, len)),
        (any::<u8>(), 1..40_000usize).prop_map(|(byte, len)| vec![byte; len]),
        ("[a-e ]{1,40}", 1..500usize).prop_map(|(words, times)| words.repeat(times).into_bytes()),
        vec(0..4u8, 1..5_000),
        // The same noise again, at any distance.
        (0..3u64, 1..10_000usize).prop_map(|(seed, len)| noise(seed, len)),
    ];
    (vec(piece, 1..10), 1..=max_len).prop_map(|(pieces, len)| {
        let mut bytes = pieces.concat();
        bytes.truncate(len);
        bytes
    })
}

fn compressions() -> impl Strategy<Value = Compression> {
    prop_oneof![
        (1..=9).prop_map(|level| Compression::new(Algorithm::Zlib, Some(level)).unwrap()),
        Just(Compression::from(Algorithm::Lzo)),
        (-15..=15).prop_map(|level| Compression::new(Algorithm::Zstd, Some(level)).unwrap()),
    ]
}

fn kinds() -> impl Strategy<Value = ExtentKind> {
    prop_oneof![1 => Just(ExtentKind::Inline), 3 => Just(ExtentKind::Regular)]
}

fn compressed(
    compressor: &mut Compressor,
    input: &[u8],
    sector_size_bytes: u32,
    kind: ExtentKind,
) -> Option<Vec<u8>> {
    let mut output = vec![0xa5; input.len()];
    let len = compressor.compress(input, &mut output, sector_size_bytes, kind).unwrap()?;
    output.truncate(len);
    Some(output)
}

/// The stored form of the stream, with noise where nothing is defined.
fn stored(mut stream: Vec<u8>, sector_size_bytes: u32, kind: ExtentKind) -> Vec<u8> {
    if kind == ExtentKind::Regular {
        let padding = stream.len().next_multiple_of(sector_size_bytes as usize) - stream.len();
        stream.extend(noise(padding as u64, padding));
    }
    stream
}

fn all_compressions() -> Vec<Compression> {
    let zlib = (1..=9).map(|level| Compression::new(Algorithm::Zlib, Some(level)).unwrap());
    let zstd = (-15..=15).map(|level| Compression::new(Algorithm::Zstd, Some(level)).unwrap());
    zlib.chain(zstd).chain([Algorithm::Lzo.into()]).collect()
}

fn prose(len: usize) -> Vec<u8> {
    let words = ["larder ", "bread ", "butter ", "flour\n", "a ", "pinch ", "of ", "salt "];
    noise(7, len).iter().flat_map(|byte| words[usize::from(byte % 8)].bytes()).take(len).collect()
}

#[test]
fn every_level_shrinks_prose_and_gives_it_back() {
    let original = prose(MAX_UNCOMPRESSED_BYTES);
    for compression in all_compressions() {
        let mut compressor = Compressor::new(compression);
        for sector_size in SECTOR_SIZES {
            let kind = ExtentKind::Regular;
            let stream = compressed(&mut compressor, &original, sector_size, kind).unwrap();
            assert!(stream.len() <= original.len() / 2, "{compression}: {}", stream.len());
            let stored = stored(stream, sector_size, kind);
            let mut output = vec![0xa5; original.len()];
            let algorithm = compression.algorithm();
            let result = decompress(algorithm, &stored, &mut output, sector_size, kind);
            assert_eq!(result, Ok(original.len()), "{compression}");
            assert!(output == original, "{compression}");
        }
        let stream = compressed(&mut compressor, &original[..2000], 4096, ExtentKind::Inline);
        let mut output = [0; 2000];
        let algorithm = compression.algorithm();
        decompress(algorithm, &stream.unwrap(), &mut output, 4096, ExtentKind::Inline).unwrap();
        assert!(output == original[..2000], "{compression}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn compressed_data_comes_back(
        original in contents(MAX_UNCOMPRESSED_BYTES),
        compression in compressions(),
        sector_size in prop::sample::select(&SECTOR_SIZES[..]),
        kind in kinds(),
        part in 0.0..1.0f64,
    ) {
        let mut original = original;
        if kind == ExtentKind::Inline {
            original.truncate(sector_size as usize);
        }
        let mut compressor = Compressor::new(compression);
        let Some(stream) = compressed(&mut compressor, &original, sector_size, kind) else {
            return Ok(());
        };
        let sectors = |len: usize| len.div_ceil(sector_size as usize);
        match kind {
            ExtentKind::Inline => prop_assert!(stream.len() < original.len()),
            ExtentKind::Regular => prop_assert!(sectors(stream.len()) < sectors(original.len())),
        }
        let algorithm = compression.algorithm();
        let stored = stored(stream, sector_size, kind);
        let extent_len = match kind {
            ExtentKind::Inline => original.len(),
            ExtentKind::Regular => sectors(original.len()) * sector_size as usize,
        };
        let mut output = vec![0xa5; extent_len];
        let produced = decompress(algorithm, &stored, &mut output, sector_size, kind);
        prop_assert_eq!(produced, Ok(original.len()));
        prop_assert!(output[..original.len()] == original);
        prop_assert!(output[original.len()..].iter().all(|&byte| byte == 0));

        let part_len = (part * original.len() as f64) as usize;
        let mut output = vec![0xa5; part_len];
        let produced = decompress(algorithm, &stored, &mut output, sector_size, kind);
        prop_assert_eq!(produced, Ok(part_len));
        prop_assert!(output == original[..part_len]);
    }

    /// Compressing an extent, to its end or not, does not affect the next.
    #[test]
    fn streams_do_not_depend_on_earlier_ones(
        extents in vec((contents(MAX_UNCOMPRESSED_BYTES), kinds()), 2..6),
        compression in compressions(),
        room in 0.0..1.2f64,
    ) {
        let mut reused = Compressor::new(compression);
        for (mut extent, kind) in extents {
            if kind == ExtentKind::Inline {
                extent.truncate(4096);
            }
            let mut fresh = Compressor::new(compression);
            let expected = compressed(&mut fresh, &extent, 4096, kind);
            prop_assert!(compressed(&mut reused, &extent, 4096, kind) == expected);
            // Stop somewhere in the middle.
            let mut output = vec![0; (expected.map_or(1000, |stream| stream.len()) as f64 * room) as usize];
            reused.compress(&extent, &mut output, 4096, kind).unwrap();
        }
    }

    /// Damage gives an error or other bytes, never a panic; a stream that is cut gives an error.
    #[test]
    fn damaged_streams_are_survived(
        compression in compressions(),
        original in contents(30_000),
        kind in kinds(),
        flips in vec((any::<prop::sample::Index>(), 0..8u32), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut original = original;
        if kind == ExtentKind::Inline {
            original.truncate(4096);
        }
        let mut compressor = Compressor::new(compression);
        let Some(stream) = compressed(&mut compressor, &original, 4096, kind) else {
            return Ok(());
        };
        let algorithm = compression.algorithm();
        let mut output = vec![0; original.len()];
        let mut flipped = stream.clone();
        for (index, bit) in flips {
            *index.get_mut(&mut flipped) ^= 1 << bit;
        }
        let _ = decompress(algorithm, &flipped, &mut output, 4096, kind);

        let cut = &stream[..cut.index(stream.len())];
        match decompress(algorithm, cut, &mut output, 4096, kind) {
            // The stream can only lose its end mark and trailer without an error.
            Ok(produced) => prop_assert!(produced == original.len() && output == original),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        // The thread's decoder works after an error.
        let mut output = vec![0; original.len()];
        let produced = decompress(algorithm, &stored(stream, 4096, kind), &mut output, 4096, kind);
        prop_assert_eq!(produced, Ok(original.len()));
        prop_assert!(output == original);
    }

    #[test]
    fn arbitrary_bytes_are_survived(
        bytes in vec(any::<u8>(), 0..600),
        algorithm in prop::sample::select(&Algorithm::ALL[..]),
        kind in kinds(),
        output_len in 0..10_000usize,
    ) {
        let mut output = vec![0; output_len];
        let _ = decompress(algorithm, &bytes, &mut output, 4096, kind);
    }
}

#[test]
fn data_that_does_not_shrink_by_a_sector_stays_uncompressed() {
    for compression in all_compressions() {
        let mut compressor = Compressor::new(compression);
        let noise = noise(1, MAX_UNCOMPRESSED_BYTES);
        assert_eq!(compressed(&mut compressor, &noise, 4096, ExtentKind::Regular), None);
        assert_eq!(compressed(&mut compressor, &noise[..2000], 4096, ExtentKind::Inline), None);
        assert_eq!(compressed(&mut compressor, &[0; 4096], 4096, ExtentKind::Regular), None);
        assert_eq!(compressed(&mut compressor, &[], 4096, ExtentKind::Regular), None);
        assert_eq!(compressed(&mut compressor, &[], 4096, ExtentKind::Inline), None);
        // The second sector is a byte long, and still one that can be saved.
        let saved = compressed(&mut compressor, &[0; 4097], 4096, ExtentKind::Regular);
        assert!(saved.is_some_and(|stream| stream.len() < 200), "{compression}");
    }
}

#[test]
fn a_stream_that_was_given_up_does_not_spoil_the_next() {
    let (noise, prose) = (noise(1, MAX_UNCOMPRESSED_BYTES), prose(50_000));
    for compression in all_compressions() {
        let mut reused = Compressor::new(compression);
        assert_eq!(compressed(&mut reused, &noise, 4096, ExtentKind::Regular), None);
        let stream = compressed(&mut reused, &prose, 4096, ExtentKind::Regular);
        let mut fresh = Compressor::new(compression);
        let expected = compressed(&mut fresh, &prose, 4096, ExtentKind::Regular);
        assert!(stream.is_some() && stream == expected, "{compression}");
    }
}

#[test]
fn limits_are_refused() {
    let mut compressor = Compressor::new(Algorithm::Lzo.into());
    let too_long =
        |len_bytes, limit_bytes| Err(CompressionError::InputTooLong { len_bytes, limit_bytes });
    let mut output = [0; 4096];
    let input = vec![0; MAX_UNCOMPRESSED_BYTES + 1];
    let result = compressor.compress(&input, &mut output, 4096, ExtentKind::Regular);
    assert_eq!(result, too_long(input.len(), MAX_UNCOMPRESSED_BYTES));
    let result = compressor.compress(&input[..4097], &mut output, 4096, ExtentKind::Inline);
    assert_eq!(result, too_long(4097, 4096));
    for size in [0, 512, 5000, 131_072] {
        let result = compressor.compress(&[0], &mut output, size, ExtentKind::Inline);
        assert_eq!(result, Err(CompressionError::SectorSize(size)));
        let result = decompress(Algorithm::Lzo, &[0], &mut output, size, ExtentKind::Inline);
        assert_eq!(result, Err(CompressionError::SectorSize(size)));
    }
}

#[test]
fn only_regular_extents_may_end_early() {
    for algorithm in Algorithm::ALL {
        let mut compressor = Compressor::new(algorithm.into());
        let stream = compressed(&mut compressor, &[7; 3000], 4096, ExtentKind::Inline).unwrap();
        let mut output = [0xa5; 4096];
        let result = decompress(algorithm, &stream, &mut output, 4096, ExtentKind::Inline);
        let (produced_bytes, expected_bytes) = (3000, 4096);
        let early = CompressionError::EndsEarly { algorithm, produced_bytes, expected_bytes };
        assert_eq!(result, Err(early));
        let result = decompress(algorithm, &stream, &mut output, 4096, ExtentKind::Regular);
        assert_eq!(result, Ok(3000));
        assert!(output[..3000] == [7; 3000] && output[3000..] == [0; 1096]);
    }
}

#[test]
fn a_wrong_adler_is_ignored_and_a_wrong_header_is_not() {
    let mut compressor = Compressor::new(Algorithm::Zlib.into());
    let mut stream = compressed(&mut compressor, &[7; 3000], 4096, ExtentKind::Inline).unwrap();
    let mut output = [0; 3000];
    *stream.last_mut().unwrap() ^= 1;
    let result = decompress(Algorithm::Zlib, &stream, &mut output, 4096, ExtentKind::Inline);
    assert_eq!(result, Ok(3000));
    stream[1] ^= 1;
    let result = decompress(Algorithm::Zlib, &stream, &mut output, 4096, ExtentKind::Inline);
    assert!(matches!(result, Err(CompressionError::Corrupt { offset_bytes: 0, .. })));
}

#[test]
fn zstd_windows_are_bounded() {
    // A frame of one raw block that claims a window of 2^log bytes.
    let frame = |log: u8| {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, (log - 10) << 3];
        frame.extend_from_slice(&((100u32 << 3) | 1).to_le_bytes()[..3]);
        frame.extend_from_slice(&[7; 100]);
        frame
    };
    let mut output = [0; 100];
    for log in [17, 21] {
        let result =
            decompress(Algorithm::Zstd, &frame(log), &mut output, 4096, ExtentKind::Regular);
        assert_eq!(result, Ok(100));
    }
    for log in [22, 27, 31, 41] {
        let result =
            decompress(Algorithm::Zstd, &frame(log), &mut output, 4096, ExtentKind::Regular);
        assert!(matches!(result, Err(CompressionError::Corrupt { .. })), "{result:?}");
    }
}

#[test]
fn written_zstd_frames_stay_in_the_window_of_the_kernel() {
    for compression in all_compressions() {
        if compression.algorithm() != Algorithm::Zstd {
            continue;
        }
        let mut compressor = Compressor::new(compression);
        for len in [5000, 100_000, MAX_UNCOMPRESSED_BYTES] {
            let stream = compressed(&mut compressor, &prose(len), 4096, ExtentKind::Regular);
            let stream = stream.unwrap();
            // One segment: the window is the content, whose size the header tells. No checksum.
            assert_eq!(stream[4] & 0b0010_0100, 0b0010_0000, "{compression}, {len} bytes");
        }
    }
}

#[test]
fn specs_are_read_and_written() {
    for (text, canonical) in [
        ("zlib", "zlib:3"),
        ("zlib:0", "zlib:3"),
        ("zlib:9", "zlib:9"),
        ("lzo", "lzo"),
        ("zstd", "zstd:3"),
        ("zstd:-15", "zstd:-15"),
        ("zstd:15", "zstd:15"),
    ] {
        let compression: Compression = text.parse().unwrap();
        assert_eq!(compression.to_string(), canonical);
        assert_eq!(canonical.parse(), Ok(compression));
    }
    for (text, message) in [
        ("", "unknown compression algorithm ''; known are zlib, lzo and zstd"),
        ("ZSTD", "unknown compression algorithm 'ZSTD'; known are zlib, lzo and zstd"),
        ("zstd3", "unknown compression algorithm 'zstd3'; known are zlib, lzo and zstd"),
        ("zlib:", "'' is no compression level"),
        ("zlib:3x", "'3x' is no compression level"),
        ("zlib:10", "zlib has no level 10; its levels are 1 to 9"),
        ("zlib:-1", "zlib has no level -1; its levels are 1 to 9"),
        ("zstd:16", "zstd has no level 16; its levels are -15 to 15"),
        ("zstd:-16", "zstd has no level -16; its levels are -15 to 15"),
        ("lzo:1", "lzo has no levels"),
    ] {
        assert_eq!(text.parse::<Compression>().unwrap_err().to_string(), message);
    }
}

#[test]
fn numbers_on_disk() {
    let numbers = Algorithm::ALL.map(Algorithm::to_disk);
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(numbers.map(Algorithm::from_disk), Algorithm::ALL.map(Some));
    assert_eq!([0, 4, 255].map(Algorithm::from_disk), [None; 3]);
}
