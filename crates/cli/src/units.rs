//! Sizes in the units that the user asks for, as btrfs-progs reads the options and writes the
//! sizes.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// The units of sizes. As an argument of a command: all options that choose units, `-h` among them,
/// so that only `--help` prints help there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Units {
    style: Style,
    /// The power of the base for all sizes; if there is none, the one that suits each.
    power: Option<usize>,
}

/// The options that have long names, for a command whose short ones mean something else.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongUnits(pub Units);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Style {
    Raw,
    #[default]
    Binary,
    Decimal,
}

/// An option that chooses units.
#[derive(Clone, Copy)]
struct UnitOption {
    name: &'static str,
    short: char,
    has_long: bool,
    help: &'static str,
    choice: Choice,
}

/// The effect of an option on the units chosen before it.
#[derive(Clone, Copy)]
enum Choice {
    /// Replaces them.
    Only(Style),
    /// Keeps the power.
    Style(Style),
    /// Keeps the style.
    Power(usize),
}

const OPTIONS: [UnitOption; 9] = {
    const fn option(name: &'static str, help: &'static str, choice: Choice) -> UnitOption {
        UnitOption { name, short: '\0', has_long: true, help, choice }
    }
    const fn short(short: char, option: UnitOption) -> UnitOption {
        UnitOption { short, ..option }
    }
    const fn without_long(option: UnitOption) -> UnitOption {
        UnitOption { has_long: false, ..option }
    }
    [
        short('b', option("raw", "Bytes, as plain numbers", Choice::Only(Style::Raw))),
        short(
            'h',
            option(
                "human-readable",
                "The unit that suits each size, base 1024 (default)",
                Choice::Only(Style::Binary),
            ),
        ),
        without_long(short(
            'H',
            option(
                "human-decimal",
                "The unit that suits each size, base 1000",
                Choice::Only(Style::Decimal),
            ),
        )),
        option("iec", "Base 1024: KiB, MiB, GiB, TiB", Choice::Style(Style::Binary)),
        option("si", "Base 1000: kB, MB, GB, TB", Choice::Style(Style::Decimal)),
        short('k', option("kbytes", "Sizes in KiB, or kB with --si", Choice::Power(1))),
        short('m', option("mbytes", "Sizes in MiB, or MB with --si", Choice::Power(2))),
        short('g', option("gbytes", "Sizes in GiB, or GB with --si", Choice::Power(3))),
        short('t', option("tbytes", "Sizes in TiB, or TB with --si", Choice::Power(4))),
    ]
};

impl UnitOption {
    fn argument(&self, has_short: bool) -> Option<Arg> {
        let mut argument = Arg::new(self.name).action(ArgAction::SetTrue).help(self.help);
        if self.has_long {
            argument = argument.long(self.name);
        }
        if has_short && self.short != '\0' {
            argument = argument.short(self.short);
        }
        (self.has_long || has_short).then_some(argument)
    }
}

impl Units {
    /// Plain numbers of bytes.
    pub fn raw() -> Self {
        Self { style: Style::Raw, power: None }
    }

    /// The units after all options, in the order in which they stand on the command line.
    fn chosen(matches: &ArgMatches) -> Self {
        let mut given: Vec<(usize, Choice)> = OPTIONS
            .iter()
            .filter(|option| matches!(matches.try_get_one::<bool>(option.name), Ok(Some(true))))
            .filter_map(|option| Some((matches.index_of(option.name)?, option.choice)))
            .collect();
        given.sort_by_key(|(position, _)| *position);
        given.into_iter().fold(Self::default(), |units, (_, choice)| match choice {
            Choice::Only(style) => Self { style, power: None },
            Choice::Style(style) => Self { style, ..units },
            Choice::Power(power) => Self { power: Some(power), ..units },
        })
    }
}

impl Args for Units {
    fn augment_args(command: Command) -> Command {
        let help = Arg::new("help").long("help").action(ArgAction::Help).help("Print help");
        command
            .disable_help_flag(true)
            .args(OPTIONS.iter().filter_map(|option| option.argument(true)))
            .arg(help)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Units {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self::chosen(matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::chosen(matches);
        Ok(())
    }
}

impl Args for LongUnits {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.iter().filter_map(|option| option.argument(false)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LongUnits {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self(Units::chosen(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self(Units::chosen(matches));
        Ok(())
    }
}

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];

impl Units {
    /// Whether each size has the unit that suits it, base 1024.
    pub fn are_human_binary(&self) -> bool {
        self.style == Style::Binary && self.power.is_none()
    }

    /// `bytes` in these units, with two decimals unless it is a plain number.
    pub fn show(&self, bytes: u64) -> String {
        let (base, names) = match self.style {
            Style::Raw => return bytes.to_string(),
            Style::Binary => (1024_u64, BINARY),
            Style::Decimal => (1000, DECIMAL),
        };
        // btrfs-progs computes in single precision. A unit that the user chose divides all bytes;
        // one that suits the size divides whole numbers, except for the last step.
        let (power, number) = match self.power {
            Some(power) => (power, bytes as f32 / base.pow(power as u32) as f32),
            None => match fitting_power(bytes, base) {
                0 => (0, bytes as f32),
                power => (power, (bytes / base.pow(power as u32 - 1)) as f32 / base as f32),
            },
        };
        format!("{number:.2}{}", names[power])
    }
}

/// The power of `base` in which `bytes` has one to four digits before the point.
fn fitting_power(bytes: u64, base: u64) -> usize {
    let mut rest = bytes;
    let mut power = 0;
    while rest >= base && power + 1 < BINARY.len() {
        rest /= base;
        power += 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The units that these options choose.
    fn units(options: &str) -> Units {
        let command = Units::augment_args(Command::new("test").args_override_self(true));
        let words = ["test"].into_iter().chain(options.split_whitespace());
        Units::chosen(&command.try_get_matches_from(words).expect("options that there are"))
    }

    #[test]
    fn sizes_read_as_btrfs_progs_writes_them() {
        assert_eq!(units("").show(0), "0.00B");
        assert_eq!(units("-h").show(196_608), "192.00KiB");
        assert_eq!(units("").show(u64::MAX), "16.00EiB");
        assert_eq!(units("-H").show(196_608), "196.61kB");
        assert_eq!(units("-H").show(268_435_456), "268.43MB");
        assert_eq!(units("-g").show(33_554_432), "0.03GiB");
        assert_eq!(units("--si").show(1_425_500), "1.42MB");
        assert_eq!(units("-m --si").show(1_425_500), "1.43MB");
        assert_eq!(units("--raw").show(33_554_432), "33554432");
    }

    #[test]
    fn later_options_override_earlier_ones_as_with_btrfs_progs() {
        for (options, expected) in [
            ("-k -m", "0.19MiB"),
            ("-m -k", "192.00KiB"),
            ("-k -m -k", "192.00KiB"),
            ("--raw --si", "196.61kB"),
            ("--si --raw", "196608"),
            ("-b -k", "196608"),
            ("-k -H", "196.61kB"),
            ("-H -k", "196.61kB"),
            ("-H -m", "0.20MB"),
            ("-m --si", "0.20MB"),
            ("-m -h", "192.00KiB"),
            ("-k --iec --iec", "192.00KiB"),
        ] {
            assert_eq!(units(options).show(196_608), expected, "{options}");
        }
    }
}
