//! `st_mode` as text.

/// `-rwxr-xr-x`, as `ls -l` writes it.
pub fn text(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        0o020_000 => 'c',
        0o060_000 => 'b',
        0o010_000 => 'p',
        0o140_000 => 's',
        0o100_000 => '-',
        _ => '?',
    };
    // Read, write, execute of one class; the special bit shows in place of execute.
    let class = |shift: u32, special: u32, letter: char| {
        let bits = mode >> shift;
        let execute = match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        };
        [if bits & 4 != 0 { 'r' } else { '-' }, if bits & 2 != 0 { 'w' } else { '-' }, execute]
    };
    let classes = [class(6, 0o4000, 's'), class(3, 0o2000, 's'), class(0, 0o1000, 't')];
    [kind].into_iter().chain(classes.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn modes_read_as_ls_writes_them() {
        assert_eq!(text(0o100_644), "-rw-r--r--");
        assert_eq!(text(0o041_777), "drwxrwxrwt");
        assert_eq!(text(0o106_745), "-rwsr-Sr-x");
    }
}
