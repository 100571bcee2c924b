//! `larder completions`, and the command that the scripts which it prints call.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};

use crate::completion::write_candidates;
use crate::outcome::Outcome;
use crate::output::stdout;

/// Print a script that lets a shell complete command lines of larder
///
/// It completes commands, options, and paths in images: `larder ls disk.img:/et` and a tab. Images
/// are only read for it.
///
/// Examples:
///   larder completions bash > ~/.local/share/bash-completion/completions/larder
///   larder completions zsh > /usr/local/share/zsh/site-functions/_larder
///   larder completions fish > ~/.config/fish/completions/larder.fish
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Completions {
    /// The shell that will read the script
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    pub fn run(&self) -> Outcome {
        let script = match self.shell {
            Shell::Bash => include_str!("../completion/larder.bash"),
            Shell::Zsh => include_str!("../completion/larder.zsh"),
            Shell::Fish => include_str!("../completion/larder.fish"),
        };
        stdout().write_all(script.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Print what the last word of a command line could be
#[derive(Debug, Args)]
pub struct Complete {
    /// The command line up to the cursor
    #[arg(last = true, required = true)]
    words: Vec<OsString>,
}

impl Complete {
    /// `larder` is everything that the command line can be.
    pub fn run(self, larder: Command) -> Outcome {
        let mut out = io::BufWriter::new(stdout());
        // A line that cannot be parsed has no candidates.
        let _ = write_candidates(larder, self.words, &mut out);
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}
