//! Options before the command, which hold for every command.

use clap::{ArgAction, Args, ValueEnum};

/// `larder [OPTIONS] COMMAND`. The last one of `-q`, `-v` and `--log` holds.
#[derive(Debug, Default, Args)]
pub struct Global {
    /// Print errors and results, and do not tell what was done
    #[arg(short, long, overrides_with_all = ["verbose", "log"])]
    quiet: bool,
    /// Tell more about what is done; twice for still more
    #[arg(short, long, action = ArgAction::Count, overrides_with_all = ["quiet", "log"])]
    verbose: u8,
    /// How much to tell: quiet is -q, info is -v
    #[arg(long, value_name = "LEVEL", value_enum, overrides_with_all = ["quiet", "verbose"])]
    log: Option<Verbosity>,
    /// How to write results, for commands that can write json
    #[arg(long, value_enum, default_value_t = Format::Text, hide_default_value = true)]
    pub format: Format,
    /// At the end, tell the requests to object storage, each attempt counted, and their bytes
    #[arg(long)]
    pub stats: bool,
}

/// How much a command tells about what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Verbosity {
    Quiet,
    Default,
    Info,
    Verbose,
    Debug,
}

/// How a command writes its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Text,
    Json,
}

impl Global {
    /// How much to tell.
    pub fn verbosity(&self) -> Verbosity {
        match (self.log, self.quiet, self.verbose) {
            (Some(level), ..) => level,
            (None, true, _) => Verbosity::Quiet,
            (None, false, 0) => Verbosity::Default,
            (None, false, 1) => Verbosity::Info,
            (None, false, 2) => Verbosity::Verbose,
            (None, false, _) => Verbosity::Debug,
        }
    }

    /// Whether results are written as JSON.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Whether to tell more than usual.
    pub fn is_verbose(&self) -> bool {
        self.verbosity() >= Verbosity::Info
    }

    /// Whether to print errors and results only.
    pub fn is_quiet(&self) -> bool {
        self.verbosity() == Verbosity::Quiet
    }
}
