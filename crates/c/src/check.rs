//! Checking.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use larder::check::{Options, Severity, check};

use crate::arguments::paths;
use crate::outcome::{Failure, number_of};

/// For larder_check(): also read all data that has checksums.
pub const LARDER_CHECK_DATA: c_uint = 1;

/// Something that is wrong with a file system. The strings are there only during the call.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct larder_finding {
    /// The stable name of the kind: "link-count".
    pub kind: *const c_char,
    /// Where it is.
    pub location: *const c_char,
    /// What was found, and what was expected.
    pub message: *const c_char,
    /// Whether data is lost, or will be when the file system is written.
    pub is_error: bool,
}

/// Gets the findings of larder_check(), one by one.
#[allow(non_camel_case_types)]
pub type larder_finding_callback =
    Option<unsafe extern "C" fn(finding: *const larder_finding, context: *mut c_void)>;

/// Checks the file system on `count` images, which must not change meanwhile. `flags` are of
/// LARDER_CHECK_*. Calls `found`, unless it is NULL, with each finding and `context`. Returns how
/// many there are: 0 for a sound file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn larder_check(
    images: *const *const c_char,
    count: usize,
    flags: c_uint,
    found: larder_finding_callback,
    context: *mut c_void,
) -> c_int {
    number_of(|| {
        if flags & !LARDER_CHECK_DATA != 0 {
            return Err(Failure::new(libc::EINVAL, "a flag of larder_check() that does not exist"));
        }
        // SAFETY: C promises it.
        let images = unsafe { paths(images, count) }?;
        let check_data_csum = flags & LARDER_CHECK_DATA != 0;
        let report = check(images, &Options { check_data_csum, ..Options::default() })?;
        for group in &report.kinds {
            for finding in &group.findings {
                let text = |text: String| CString::new(text.replace('\0', "")).unwrap_or_default();
                let (kind, message) = (text(group.kind.id().into()), text(finding.message()));
                let location = text(finding.location.to_string());
                let finding = larder_finding {
                    kind: kind.as_ptr(),
                    location: location.as_ptr(),
                    message: message.as_ptr(),
                    is_error: group.severity == Severity::Error,
                };
                if let Some(found) = found {
                    // SAFETY: C gave the function, and the finding lives until it returns.
                    unsafe { found(&raw const finding, context) };
                }
            }
        }
        Ok(c_int::try_from(report.count()).unwrap_or(c_int::MAX))
    })
}
