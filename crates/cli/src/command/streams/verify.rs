//! `larder streams verify`.

use std::io::Write;

use clap::Args;
use larder_objects::Address;
use larder_objects::streams::{Catalogue, Pace, verify};
use serde::Serialize;

use super::shown::{Named, gaps, shown};
use crate::global::Global;
use crate::objects::{parse_address, store};
use crate::outcome::{Outcome, exit_code};
use crate::output::stdout;
use crate::print::write_json;
use crate::progress::Progress;

/// Read all parts of streams, and compare them with their checksums
///
/// Without a stream, all of them. Also tells of streams that build on a snapshot of which there is
/// no stream: a file system can receive them only if it has that snapshot. Fails if anything is
/// wrong.
///
/// Examples:
///   larder streams verify s3://bucket/backups
///   larder streams verify file:///srv/backups monday tuesday
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Verify {
    /// Where the streams are
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
    /// Only these streams
    #[arg(value_name = "STREAM")]
    streams: Vec<String>,
}

#[derive(Serialize)]
struct Object {
    /// In bytes.
    size: u64,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    #[serde(flatten)]
    stream: Named,
    problem: String,
}

impl Verify {
    pub fn run(self, global: &Global) -> Outcome {
        let store = store(&self.address)?;
        let catalogue = Catalogue::load(&*store)?;
        let named = self.streams.iter().map(|text| catalogue.stream(&*store, text));
        let mut streams = named.collect::<Result<Vec<_>, _>>()?;
        if streams.is_empty() {
            streams = catalogue.streams.iter().collect();
        }
        let mut progress = Progress::of_bytes();
        let damage = verify(&store, &streams, Pace::default(), &mut |done, total| {
            progress.set_of(done, total);
        })?;
        drop(progress);
        let mut findings = Vec::new();
        for stream in &streams {
            let of_this = damage.iter().filter(|finding| finding.stream == stream.id);
            let problems = of_this.map(|finding| finding.problem.clone());
            for problem in problems.chain(gaps(&catalogue, stream)) {
                findings.push((*stream, problem));
            }
        }
        let code = exit_code(findings.len());
        let size = streams.iter().map(|stream| stream.len_bytes).sum();
        let mut out = stdout();
        if global.is_json() {
            let finding = |(stream, problem)| Finding { stream: Named::of(stream), problem };
            let findings = findings.into_iter().map(finding).collect();
            write_json(&mut out, "streams-verify", &Object { size, findings })?;
            return Ok(code);
        }
        for (stream, problem) in &findings {
            writeln!(out, "{}: {problem}", shown(stream))?;
        }
        if findings.is_empty() {
            writeln!(out, "{size} bytes of {} streams are as they were sent", streams.len())?;
        }
        Ok(code)
    }
}
