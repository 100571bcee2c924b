//! Checking.

use larder::check::{KindFindings, Options, Report};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::interrupt::interruptibly;
use crate::path::FsPaths;

/// Something that is wrong with a file system.
#[pyclass(frozen, get_all, module = "larder")]
pub(crate) struct Finding {
    /// The stable name of the kind: `link-count`.
    kind: &'static str,
    /// `error` or `warning`.
    severity: String,
    /// The meaning of the kind, in a sentence.
    title: &'static str,
    /// Where it is, as text.
    location: String,
    /// What was found, and what was expected.
    message: String,
    /// Paths of affected files, as far as they are known.
    paths: Vec<String>,
    /// Where on devices it is, as text.
    devices: Vec<String>,
}

/// The result of a check. It is true if the file system is sound.
#[pyclass(frozen, module = "larder")]
pub(crate) struct CheckReport {
    /// Findings, worst and most basic first.
    #[pyo3(get)]
    findings: Vec<Py<Finding>>,
    /// The number of findings, including those that were not kept.
    #[pyo3(get)]
    count: u64,
    /// Skipped parts, and why.
    #[pyo3(get)]
    skipped: Vec<String>,
    /// The UUID of the file system.
    #[pyo3(get)]
    uuid: String,
    /// Bytes of data that were compared with their checksums.
    #[pyo3(get)]
    verified_bytes: u64,
    text: String,
}

#[pymethods]
impl Finding {
    fn __str__(&self) -> String {
        format!("{}: {}: {}: {}", self.severity, self.kind, self.location, self.message)
    }

    fn __repr__(&self) -> String {
        format!("<larder.Finding {}>", self.__str__())
    }
}

#[pymethods]
impl CheckReport {
    fn __bool__(&self) -> bool {
        self.count == 0
    }

    /// A line for each finding, and a summary.
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<larder.CheckReport of {}: {} findings>", self.uuid, self.count)
    }
}

impl CheckReport {
    fn new(py: Python<'_>, report: &Report) -> PyResult<Self> {
        let findings = report.kinds.iter().flat_map(findings).map(|finding| Py::new(py, finding));
        Ok(Self {
            findings: findings.collect::<PyResult<_>>()?,
            count: report.count(),
            skipped: report.skipped.clone(),
            uuid: report.fsid.clone(),
            verified_bytes: report.statistics.verified_bytes,
            text: report.to_string(),
        })
    }
}

fn findings(group: &KindFindings) -> impl Iterator<Item = Finding> {
    group.findings.iter().map(|finding| Finding {
        kind: group.kind.id(),
        severity: group.severity.to_string(),
        title: group.kind.title(),
        location: finding.location.to_string(),
        message: finding.message(),
        paths: finding.files.iter().filter_map(|file| file.path.clone()).collect(),
        devices: finding.devices.iter().map(ToString::to_string).collect(),
    })
}

/// Checks a file system, which must not change meanwhile: all metadata and, with `data`, all data
/// that has checksums.
#[pyfunction]
#[pyo3(signature = (paths, *, data = false, threads = 0, kept_per_kind = 100))]
pub(crate) fn check(
    py: Python<'_>,
    paths: FsPaths,
    data: bool,
    threads: usize,
    kept_per_kind: usize,
) -> PyResult<CheckReport> {
    let paths = paths.into_vec();
    let first = paths.first().cloned();
    let first = first.ok_or_else(|| PyValueError::new_err("no path of an image or device"))?;
    let checked = interruptibly(py, |going| {
        let progress = |_| going.on();
        let options =
            Options { check_data_csum: data, threads, kept_per_kind, progress: Some(&progress) };
        larder::check::check(&paths, &options)
    });
    let report = checked?.or_raise_about(&first)?;
    CheckReport::new(py, &report)
}
