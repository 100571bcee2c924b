//! Completion of a command line, for shells: commands, options, and paths in images.
//!
//! A script of each shell calls `larder __complete` with the words up to the cursor, and gets a
//! line for each candidate: the whole word, and after a tab what it means.

mod image_path;

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use clap::Command;
use clap_complete::CompletionCandidate;
use clap_complete::engine::{ArgValueCompleter, complete};

/// Operands whose names contain one of these may be paths in images.
const IN_IMAGES: [&str; 5] = ["IMAGE:/", "IMAGE[:/", "SOURCE", "DEST", "SNAPSHOT"];

/// Writes the candidates for the last of `words`; the first is the name of the program.
pub fn write_candidates(
    command: Command,
    mut words: Vec<OsString>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut command = completing_image_paths(command);
    command.build();
    spell_out(&command, &mut words);
    let last = words.len().saturating_sub(1);
    let directory = env::current_dir().ok();
    for candidate in complete(&mut command, words, last, directory.as_deref())? {
        write_candidate(&candidate, out)?;
    }
    Ok(())
}

/// A name with control characters is left out: shells read lines, and terminals obey the rest.
fn write_candidate(candidate: &CompletionCandidate, out: &mut impl Write) -> io::Result<()> {
    let word = candidate.get_value().as_bytes();
    if word.iter().any(u8::is_ascii_control) {
        return Ok(());
    }
    out.write_all(word)?;
    let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
    match help.lines().next() {
        Some(meaning) => writeln!(out, "\t{meaning}"),
        None => writeln!(out),
    }
}

/// Every operand that may be a path in an image is completed as one.
fn completing_image_paths(command: Command) -> Command {
    let is_in_image = |argument: &clap::Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().any(|name| IN_IMAGES.iter().any(|part| name.contains(part)))
    };
    command
        .mut_args(|argument| {
            if is_in_image(&argument) {
                argument.add(ArgValueCompleter::new(image_path::candidates))
            } else {
                argument
            }
        })
        .mut_subcommands(completing_image_paths)
}

/// Replaces unambiguous beginnings of commands, which the command line accepts, by the whole names.
fn spell_out(command: &Command, words: &mut [OsString]) {
    let Some((_, words)) = words.split_last_mut() else { return };
    let mut command = command;
    for word in words.iter_mut().skip(1) {
        let Some(text) = word.to_str() else { return };
        let mut meant =
            command.get_subcommands().filter(|below| below.get_name().starts_with(text));
        let found = command.find_subcommand(text).or_else(|| match (meant.next(), meant.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        });
        let Some(found) = found else { return };
        *word = found.get_name().into();
        command = found;
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::command::Larder;

    fn candidates(line: &str) -> Vec<String> {
        let mut out = Vec::new();
        let words = line.split(' ').map(OsString::from).collect();
        write_candidates(Larder::command(), words, &mut out).expect("memory takes it");
        let text = String::from_utf8(out).expect("names are text");
        text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn commands_and_options_are_completed() {
        assert_eq!(candidates("larder subv"), ["subvolume"]);
        assert_eq!(candidates("larder sub l"), ["list"]);
        assert_eq!(candidates("larder inspect-internal root"), ["rootid"]);
        assert_eq!(candidates("larder mkfs --chec"), ["--checksum"]);
        assert!(!candidates("larder ").contains(&"__complete".to_owned()));
    }

    #[test]
    fn nothing_is_invented() {
        assert_eq!(candidates("larder ls /nonexistent.img:/"), [""; 0]);
        assert_eq!(candidates("larder nonsense x"), [""; 0]);
    }
}
