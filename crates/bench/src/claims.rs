//! Whether what `docs/benchmarks.md` says still holds.
//!
//! The page has transcripts: a command of this program, and what it printed. A claim is a ratio in
//! one, as in `4.20x`, or that there is no difference.

use std::env;
use std::fmt::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

const PAGE: &str = include_str!("../../../docs/benchmarks.md");
const PROMPT: &str = "$ larder-bench ";
/// The same work on the same machine differs by so much from hour to hour.
const LEAST_PART: f64 = 0.8;

/// A command, and what it printed.
struct Transcript<'p> {
    command: &'p str,
    output: Vec<&'p str>,
}

/// The ratios of a line, and the line with `~` in the place of numbers.
#[derive(Debug, PartialEq)]
struct Claim {
    text: String,
    ratios: Vec<f64>,
}

/// Runs every command of the page, and prints each claim beside what is seen now.
///
/// # Errors
///
/// A command fails, or a claim no longer holds.
pub fn check() -> anyhow::Result<()> {
    let mut broken = 0;
    for transcript in transcripts(PAGE) {
        println!("{PROMPT}{}", transcript.command);
        let mut program = Command::new(env::current_exe()?);
        program.args(transcript.command.split_whitespace()).stderr(Stdio::inherit());
        let output = program.output().with_context(|| format!("cannot run {program:?}"))?;
        ensure!(output.status.success(), "{program:?} failed: {}", output.status);
        let seen = String::from_utf8_lossy(&output.stdout);
        let seen: Vec<Claim> = seen.lines().filter_map(claim).collect();
        let claimed: Vec<Claim> = transcript.output.iter().copied().filter_map(claim).collect();
        ensure!(
            seen.iter().map(|claim| &claim.text).eq(claimed.iter().map(|claim| &claim.text)),
            "{PROMPT}{} prints other lines than the page has: write them there anew",
            transcript.command
        );
        for (claimed, seen) in claimed.iter().zip(&seen) {
            for (claimed, now) in claimed.ratios.iter().zip(&seen.ratios) {
                let holds = now >= &(claimed * LEAST_PART);
                broken += usize::from(!holds);
                let verdict = if holds { "holds" } else { "does not hold" };
                println!("  {verdict}: {claimed:.2}x, now {now:.2}x: {}", seen.text);
            }
        }
    }
    ensure!(broken == 0, "{broken} claims no longer hold");
    Ok(())
}

fn transcripts(page: &str) -> Vec<Transcript<'_>> {
    let mut transcripts: Vec<Transcript<'_>> = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_inside = false;
        } else if let Some(command) = line.strip_prefix(PROMPT) {
            transcripts.push(Transcript { command, output: Vec::new() });
            is_inside = true;
        } else if let Some(transcript) = transcripts.last_mut().filter(|_| is_inside) {
            transcript.output.push(line);
        }
    }
    transcripts
}

/// The claim of a line of output, if it has a ratio.
fn claim(line: &str) -> Option<Claim> {
    // What differs from run to run is no part of the claim: that the interval is there or not.
    let line = match line.split_once("no difference (") {
        Some((before, after)) => {
            format!("{before}1.00x{}", after.split_once(')').map_or("", |(_, rest)| rest))
        }
        None => match line.split_once("x (") {
            Some((before, after)) if after.contains(" to ") => {
                format!("{before}x{}", after.split_once(')').map_or("", |(_, rest)| rest))
            }
            _ => line.to_owned(),
        },
    };
    let (mut text, mut ratios) = (String::new(), Vec::new());
    for word in line.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', ')']).trim_start_matches('(');
        let ratio: Option<f64> = bare.strip_suffix('x').and_then(|number| number.parse().ok());
        ratios.extend(ratio);
        let shown = if ratio.is_some() || is_number(bare) { "~" } else { word };
        let _ = write!(text, "{}{shown}", if text.is_empty() { "" } else { " " });
    }
    (!ratios.is_empty()).then_some(Claim { text, ratios })
}

fn is_number(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit() || first == '-')
        && word
            .trim_start_matches('-')
            .chars()
            .all(|each| each.is_ascii_digit() || ".,".contains(each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_two_runs_are_the_same_claim() {
        let one =
            claim("      2 from level 1, on        268344   1.18x (1.10 to 1.25)  109160").unwrap();
        let two = claim("      2 from level 1, on        301344   no difference (0.9 to 1.2)  -")
            .unwrap();
        assert_eq!(one.text, two.text);
        assert_eq!((one.ratios, two.ratios), (vec![1.18], vec![1.0]));
        let both =
            claim("larder is 4.20x as fast, with the sync 4.30x; its peak was 347 MiB").unwrap();
        assert_eq!(both.ratios, [4.2, 4.3]);
        assert_eq!(claim("kernel, fs_mark: 75200 files/s"), None);
    }

    #[test]
    fn the_page_has_claims() {
        let transcripts = transcripts(PAGE);
        let claims = |transcript: &Transcript<'_>| {
            transcript.output.iter().copied().filter_map(claim).count()
        };
        assert!(!transcripts.is_empty());
        for transcript in &transcripts {
            assert!(claims(transcript) > 0, "{PROMPT}{} claims nothing", transcript.command);
        }
    }
}
