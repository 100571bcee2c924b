//! Words that users try for a command: synonyms, and mistakes.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue};

/// Words of other programs, and the commands that they stand for.
const SYNONYMS: [(&str, &[&str]); 8] = [
    ("df", &["filesystem", "df"]),
    ("fsck", &["check"]),
    ("info", &["filesystem", "show"]),
    ("label", &["filesystem", "label"]),
    ("resize", &["filesystem", "resize"]),
    ("snapshot", &["subvolume", "snapshot"]),
    ("sync", &["filesystem", "sync"]),
    ("usage", &["filesystem", "usage"]),
];
/// Options before the command that take a value.
const WITH_VALUE: [&str; 2] = ["--format", "--log"];

/// The command line without the `--` of `help --`, after which no options follow that it could end.
pub fn without_end_of_help(arguments: &[OsString]) -> Vec<OsString> {
    let at = (1..arguments.len())
        .find(|at| arguments[*at] == "--")
        .filter(|at| arguments[at - 1] == "help");
    let kept = arguments.iter().enumerate().filter(|(it, _)| Some(*it) != at);
    kept.map(|(_, argument)| argument.clone()).collect()
}

/// The command line with a `=` before the filters of a balance, which follow `-d`, `-m` and `-s`
/// directly.
pub fn with_filters_apart(arguments: &[OsString]) -> Vec<OsString> {
    let start = arguments.windows(2).position(|pair| {
        pair[0].to_str().is_some_and(|word| !word.is_empty() && "balance".starts_with(word))
            && pair[1] == "start"
    });
    let apart = |(at, argument): (usize, &OsString)| {
        let is_after = start.is_some_and(|start| at > start);
        let text = argument.to_str().filter(|_| is_after).unwrap_or_default();
        match ["-d", "-m", "-s"].iter().find_map(|option| text.strip_prefix(option)) {
            Some(filters) if !filters.is_empty() && !filters.starts_with('=') => {
                format!("{}={filters}", &text[..2]).into()
            }
            _ => argument.clone(),
        }
    };
    arguments.iter().enumerate().map(apart).collect()
}

/// The command line with a synonym replaced by its command.
pub fn without_synonym(arguments: &[OsString]) -> Vec<OsString> {
    let is_value = |at: usize| WITH_VALUE.iter().any(|option| arguments[at - 1] == *option);
    let is_command =
        |at: &usize| !arguments[*at].as_encoded_bytes().starts_with(b"-") && !is_value(*at);
    let at = (1..arguments.len()).find(is_command);
    let meant = at.and_then(|at| {
        let (_, meant) = SYNONYMS.iter().find(|(word, _)| arguments[at] == *word)?;
        Some((at, meant))
    });
    let Some((at, meant)) = meant else { return arguments.to_vec() };
    let meant = meant.iter().map(OsString::from);
    arguments[..at]
        .iter()
        .cloned()
        .chain(meant)
        .chain(arguments[at + 1..].iter().cloned())
        .collect()
}

/// Takes from what `usage` proposes what is no command that `command` shows: abbreviations, and
/// what is missing.
pub fn without_hidden(mut usage: clap::Error, command: &Command) -> clap::Error {
    let mut shown = BTreeSet::new();
    collect(command, &mut shown);
    let proposed = match usage.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::String(one)) => vec![one.clone()],
        Some(ContextValue::Strings(some)) => some.clone(),
        _ => return usage,
    };
    let proposed: Vec<String> = proposed.into_iter().filter(|it| shown.contains(it)).collect();
    let proposed =
        if proposed.is_empty() { ContextValue::None } else { ContextValue::Strings(proposed) };
    usage.insert(ContextKind::SuggestedSubcommand, proposed);
    usage
}

/// The names of all commands below `command` that its help shows.
fn collect(command: &Command, names: &mut BTreeSet<String>) {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        names.insert(below.get_name().to_owned());
        collect(below, names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::command;
    use crate::program::Program;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn synonyms_stand_for_commands() {
        for (said, meant) in [
            ("larder df x", "larder filesystem df x"),
            ("larder --format json usage x", "larder --format json filesystem usage x"),
            ("larder fsck --force x", "larder check --force x"),
            ("larder ls df", "larder ls df"),
            ("larder --format df", "larder --format df"),
            ("larder --log info df x", "larder --log info filesystem df x"),
            ("larder", "larder"),
        ] {
            assert_eq!(without_synonym(&words(said)), words(meant));
        }
    }

    #[test]
    fn all_options_before_the_command_that_take_a_value_are_known() {
        let command = command(Program::Larder);
        let takes_value =
            |arg: &&clap::Arg| arg.get_action().takes_values() && arg.get_long().is_some();
        let long = command.get_arguments().filter(takes_value).filter_map(clap::Arg::get_long);
        let long: BTreeSet<_> = long.map(|name| format!("--{name}")).collect();
        assert_eq!(long, WITH_VALUE.map(str::to_owned).into());
    }

    #[test]
    fn every_synonym_is_no_command_and_stands_for_one() {
        let command = command(Program::Larder);
        for (word, meant) in SYNONYMS {
            assert!(command.get_subcommands().all(|below| below.get_name() != word), "{word}");
            let found = meant.iter().try_fold(&command, |at, name| at.find_subcommand(name));
            assert!(found.is_some(), "{word}");
        }
    }

    #[test]
    fn only_commands_that_help_shows_are_proposed() {
        let proposed = |line: &str| {
            let command = command(Program::Larder);
            let error = command.clone().try_get_matches_from(words(line)).unwrap_err();
            without_hidden(error, &command).to_string()
        };
        assert!(!proposed("larder qgruop").contains("qgroup"));
        assert!(!proposed("larder repp").contains("'rep'"));
        assert!(proposed("larder chekc").contains("'check'"));
    }
}
