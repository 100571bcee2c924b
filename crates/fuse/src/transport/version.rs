//! Which Linux this is.

/// Whether it is this version or a newer one.
pub(super) fn is_at_least(version: (u32, u32)) -> bool {
    let release = rustix::system::uname();
    release.release().to_str().ok().and_then(parse).is_some_and(|this| this >= version)
}

/// The first two numbers of a release of Linux.
fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn releases_are_compared() {
        assert_eq!(parse("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(parse("7.0-rc1"), Some((7, 0)));
        assert_eq!(parse("10.2+"), Some((10, 2)));
        assert_eq!(parse("next"), None);
    }
}
