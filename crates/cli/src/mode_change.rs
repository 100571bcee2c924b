//! Changes of a mode as `chmod` takes them: `755`, `u+x,go-w`, `g=u`, `a+X`.

use std::str::Chars;

const PERMISSIONS: u32 = 0o777;
const ALL: u32 = 0o7777;
const SET_IDS: u32 = 0o6000;
const EXECUTE: u32 = 0o111;

/// A change of permissions with setuid, setgid and sticky.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange {
    clauses: Vec<Clause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clause {
    /// The bits of the classes that it names; `None` for all, minus the umask.
    who: Option<u32>,
    operator: Operator,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// These bits and, with `executable`, execution of directories and executable files.
    Bits { bits: u32, executable: bool },
    /// The permissions of the class whose bits begin there.
    CopyOf(u32),
    /// All bits as a number; the mask has those that it can mean.
    Number { bits: u32, mask: u32 },
}

impl ModeChange {
    /// Reads a change.
    pub fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("'{text}' is not a mode: 644 or u+x,go-w would be");
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
        if is_number {
            let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= ALL);
            let bits = bits.ok_or_else(invalid)?;
            // A number of fewer than five digits leaves a directory's set-ids that it does not
            // name.
            let mask = if text.len() < 5 { bits | PERMISSIONS } else { ALL };
            let what = What::Number { bits, mask };
            return Ok(Self { clauses: vec![Clause { who: None, operator: Operator::Set, what }] });
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_part(part, &mut clauses).ok_or_else(invalid)?;
        }
        Ok(Self { clauses })
    }

    /// The mode after the change of `mode`, whose type stays. The `umask` applies to clauses that
    /// name no class.
    pub fn apply(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        self.apply_noting(mode, is_directory, umask).0
    }

    /// Like [`apply`](Self::apply), with the bits that the change decides, whatever they were.
    pub fn apply_noting(&self, mode: u32, is_directory: bool, umask: u32) -> (u32, u32) {
        self.clauses.iter().fold((mode, 0), |(mode, noted), clause| {
            let (mode, decided) = clause.apply(mode, is_directory, umask);
            (mode, noted | decided)
        })
    }
}

impl Clause {
    /// The mode after the change of `mode`, and the bits that the change decides.
    fn apply(&self, mode: u32, is_directory: bool, umask: u32) -> (u32, u32) {
        let (value, mentioned) = match self.what {
            What::Number { bits, mask } => (bits, mask),
            What::Bits { bits, executable } => {
                let runs = executable && (is_directory || mode & EXECUTE != 0);
                let bits = self.limit(bits | if runs { EXECUTE } else { 0 }, umask);
                (bits, self.who.map_or(bits, |who| who & bits))
            }
            What::CopyOf(shift) => {
                let class = mode >> shift & 7;
                let bits = self.limit(class << 6 | class << 3 | class, umask);
                (bits, bits)
            }
        };
        // A directory's set-ids stay unless they are named.
        let left = if is_directory { SET_IDS & !mentioned } else { 0 };
        let value = value & !left;
        match self.operator {
            Operator::Add => (mode | value, value),
            Operator::Remove => (mode & !value, value),
            Operator::Set => {
                let decided = ALL & !left & self.who.unwrap_or(ALL);
                (mode & !decided | value, decided)
            }
        }
    }

    fn limit(&self, bits: u32, umask: u32) -> u32 {
        bits & self.who.unwrap_or(ALL & !umask)
    }
}

/// Reads one clause: classes, then one or more operators with what they add, remove or set.
fn parse_part(part: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let mut rest = part.chars();
    let mut who = None;
    while let Some(bits) = rest.clone().next().and_then(bits_of_class) {
        who = Some(who.unwrap_or(0) | bits);
        rest.next();
    }
    while let Some(sign) = rest.next() {
        let operator = match sign {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            '=' => Operator::Set,
            _ => return None,
        };
        clauses.push(Clause { who, operator, what: parse_what(&mut rest) });
    }
    (!part.is_empty() && part.contains(['+', '-', '='])).then_some(())
}

fn bits_of_class(letter: char) -> Option<u32> {
    match letter {
        'u' => Some(0o4700),
        'g' => Some(0o2070),
        'o' => Some(0o1007),
        'a' => Some(ALL),
        _ => None,
    }
}

/// Reads the operand after an operator, up to the first character that cannot belong to it.
fn parse_what(rest: &mut Chars<'_>) -> What {
    if let Some(shift) = rest.clone().next().and_then(|letter| "ogu".find(letter)) {
        rest.next();
        return What::CopyOf(3 * shift as u32);
    }
    let (mut bits, mut executable) = (0, false);
    while let Some(letter) = rest.clone().next() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= EXECUTE,
            's' => bits |= SET_IDS,
            't' => bits |= 0o1000,
            'X' => executable = true,
            _ => break,
        }
        rest.next();
    }
    What::Bits { bits, executable }
}

#[cfg(test)]
mod tests {
    use super::ModeChange;

    fn changed(text: &str, mode: u32, is_directory: bool) -> u32 {
        ModeChange::parse(text).unwrap().apply(mode, is_directory, 0o022)
    }

    #[test]
    fn changes_are_those_of_chmod() {
        for (text, before, after) in [
            ("755", 0o100_644, 0o100_755),
            ("0", 0o104_777, 0o100_000),
            ("7777", 0o100_000, 0o107_777),
            ("u+x", 0o100_644, 0o100_744),
            ("+x", 0o100_600, 0o100_711),
            ("+w", 0o100_400, 0o100_600),
            ("=rw", 0o104_777, 0o100_644),
            ("a+rw", 0o100_600, 0o100_666),
            ("go-rwx", 0o100_777, 0o100_700),
            ("g=u", 0o100_640, 0o100_660),
            ("o=g-w", 0o100_460, 0o100_464),
            ("u+s,g+s,+t", 0o100_755, 0o107_755),
            ("u-s", 0o106_755, 0o102_755),
            ("a+X", 0o100_644, 0o100_644),
            ("a+X", 0o100_744, 0o100_755),
            ("u=,g=rX,o+x-x", 0o100_751, 0o100_050),
        ] {
            assert_eq!(
                format!("{:o}", changed(text, before, false)),
                format!("{after:o}"),
                "{text}"
            );
        }
        for (text, before, after) in [
            ("755", 0o042_777, 0o042_755),
            ("00755", 0o042_777, 0o040_755),
            ("2755", 0o040_777, 0o042_755),
            ("g=rx", 0o042_777, 0o042_757),
            ("g-s", 0o042_777, 0o040_777),
            ("a+X", 0o040_644, 0o040_755),
            ("=", 0o042_777, 0o042_000),
        ] {
            assert_eq!(
                format!("{:o}", changed(text, before, true)),
                format!("{after:o}"),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_modes_are_refused() {
        for text in ["", "8", "10000", "u", "u+q", "x", "+x,", "u+x,,g+x", "ux+r"] {
            assert!(ModeChange::parse(text).is_err(), "{text}");
        }
    }
}
