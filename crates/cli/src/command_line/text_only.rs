//! Commands that write no JSON: each says why when it is asked for.

use clap::ArgMatches;

use crate::global::Format;

const TELLS: &str = "it tells what it does, and has no results";
const DATA: &str = "it writes data as it is";
const SCRIPT: &str = "it writes what another program reads";
const READING: &str = "a dump is for reading; other commands of inspect are for scripts";

const REASONS: &[(&str, &[&str])] = &[
    (
        TELLS,
        &[
            "balance cancel",
            "balance pause",
            "chmod",
            "chown",
            "cp",
            "device add",
            "device delete",
            "device ready",
            "device remove",
            "device replace cancel",
            "device replace resume",
            "device replace start",
            "device scan",
            "export",
            "filesystem mkswapfile",
            "filesystem resize",
            "filesystem sync",
            "image shrink",
            "import",
            "install-links",
            "ln",
            "mkdir",
            "mkfs",
            "mount",
            "mv",
            "objects clone",
            "objects key add",
            "objects key change",
            "objects key remove",
            "objects rebuild",
            "objects rollback",
            "objects verify",
            "property set",
            "reflink",
            "replace cancel",
            "replace resume",
            "replace start",
            "rescue undo",
            "restore",
            "rm",
            "scrub cancel",
            "setfattr",
            "subvolume create",
            "subvolume delete",
            "subvolume set-default",
            "subvolume snapshot",
            "subvolume sync",
            "touch",
            "truncate",
            "umount",
            "write",
        ],
    ),
    (DATA, &["cat", "send", "tar"]),
    (SCRIPT, &["__complete", "completions", "man-pages"]),
    (READING, &["inspect dump-tree"]),
];

/// The words of the command in a command line.
fn command_in(mut read: &ArgMatches) -> String {
    let mut words = Vec::new();
    while let Some((word, below)) = read.subcommand() {
        words.push(word);
        read = below;
    }
    words.join(" ")
}

/// A sentence about the format, if the command line asks for JSON of a command that writes none.
pub fn asked(read: &ArgMatches) -> Option<String> {
    let format = read.try_get_one::<Format>("format").ok().flatten();
    if format != Some(&Format::Json) {
        return None;
    }
    let command = command_in(read);
    let (reason, _) = REASONS.iter().find(|(_, paths)| paths.contains(&command.as_str()))?;
    Some(format!("output format json is unsupported for this command: {reason}"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::command::Larder;

    #[test]
    fn each_is_a_command() {
        for path in REASONS.iter().flat_map(|(_, paths)| *paths) {
            let larder = Larder::command();
            let mut words = path.split(' ');
            let found = words.try_fold(&larder, |above, word| above.find_subcommand(word));
            assert!(found.is_some_and(|command| !command.has_subcommands()), "{path}");
        }
    }
}
