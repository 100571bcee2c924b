//! The manual: a man page for each command, made of its help.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

const SECTION: &str = "1";
const EXAMPLES: [&str; 2] = ["Examples:", "Example:"];
const EXIT_CODES: &str = "Exit codes:";

/// The pages of `command` and all commands below it: names of files, and content.
pub fn pages(command: Command) -> Vec<(String, Vec<u8>)> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let source = format!("larder {}", command.get_version().unwrap_or_default());
    let mut pages = Vec::new();
    add_pages(&command, &[], "", &source, &mut pages);
    pages
}

/// `above` names the commands that `command` is part of; `exit_codes` are those of the nearest one
/// whose help lists them.
fn add_pages(
    command: &Command,
    above: &[String],
    exit_codes: &str,
    source: &str,
    pages: &mut Vec<(String, Vec<u8>)>,
) {
    if command.is_hide_set() {
        return;
    }
    let help = Help::of(command);
    let exit_codes = help.exit_codes.as_deref().unwrap_or(exit_codes);
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let page = page(command, &help, above, exit_codes, source);
    pages.push((format!("{name}.{SECTION}"), page));
    let above = [above, &[name]].concat();
    for below in command.get_subcommands() {
        add_pages(below, &above, exit_codes, source, pages);
    }
}

fn page(
    command: &Command,
    help: &Help,
    above: &[String],
    exit_codes: &str,
    source: &str,
) -> Vec<u8> {
    let man = Man::new(command.clone()).section(SECTION).source(source).manual("Larder");
    let mut page = Vec::new();
    let sections = [Man::render_title, Man::render_name_section, Man::render_synopsis_section];
    for section in sections {
        section(&man, &mut page).expect("memory takes it");
    }
    section("DESCRIPTION", &help.description, &mut page);
    man.render_options_section(&mut page).expect("memory takes it");
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page).expect("memory takes it");
    }
    section("EXAMPLES", &help.examples, &mut page);
    section("EXIT STATUS", exit_codes, &mut page);
    let others: Vec<String> = above.iter().map(|name| format!("{name}({SECTION})")).collect();
    section("SEE ALSO", &others.join(", "), &mut page);
    page
}

/// The help of a command, in the parts that a man page has sections for.
struct Help {
    description: String,
    examples: String,
    exit_codes: Option<String>,
}

impl Help {
    fn of(command: &Command) -> Self {
        let text = command.get_long_about().or_else(|| command.get_about());
        let text = text.map(ToString::to_string).unwrap_or_default();
        let (mut description, mut examples, mut exit_codes) = (Vec::new(), Vec::new(), None);
        for paragraph in text.split("\n\n") {
            let after = |heading: &&str| paragraph.strip_prefix(*heading);
            if let Some(lines) = EXAMPLES.iter().find_map(after) {
                examples.extend(lines.trim().lines().map(|line| format!("  {}", line.trim())));
            } else if let Some(codes) = paragraph.strip_prefix(EXIT_CODES) {
                exit_codes = Some(codes.strip_prefix('\n').unwrap_or(codes.trim()).to_owned());
            } else {
                description.push(paragraph);
            }
        }
        Self { description: description.join("\n\n"), examples: examples.join("\n"), exit_codes }
    }
}

/// Lines that start with blanks keep their form; others are filled.
fn section(heading: &str, text: &str, page: &mut Vec<u8>) {
    if text.is_empty() {
        return;
    }
    let mut roff = Roff::new();
    roff.control("SH", [heading]);
    let mut is_kept = false;
    for line in text.lines() {
        if line.starts_with("  ") != is_kept {
            is_kept = !is_kept;
            roff.control(if is_kept { "EX" } else { "EE" }, []);
        }
        if line.is_empty() {
            roff.control("PP", []);
        } else {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
    }
    if is_kept {
        roff.control("EE", []);
    }
    roff.to_writer(page).expect("memory takes it");
}
