//! The results of calls, for C.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

#[cfg(target_os = "linux")]
use libc::__errno_location as errno_location;
#[cfg(not(target_os = "linux"))]
use libc::__error as errno_location;
use libc::ssize_t;

/// An error with its number and its text.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    text: String,
}

/// The result of a call.
pub(crate) type Outcome<T> = Result<T, Failure>;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

impl Failure {
    pub(crate) fn new(errno: c_int, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// A panic in the library.
    fn of_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Self::new(libc::EIO, format!("panicked: {}", text.unwrap_or("for an unknown reason")))
    }

    /// Keeps the text for `larder_last_error`, sets `errno`, and returns its number.
    fn tell(self) -> c_int {
        let text = self.text.replace('\0', "");
        LAST_ERROR.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
        // SAFETY: the address is that of a number of this thread, which lives as long as it.
        unsafe { *errno_location() = self.errno };
        self.errno
    }
}

impl From<larder::Error> for Failure {
    fn from(error: larder::Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

/// Makes the call; a panic is a failure of it.
fn run<T>(call: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    // What the call has borrowed is the library's, which holds its own promises after a panic.
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|payload| Err(Failure::of_panic(payload.as_ref())))
}

/// 0, or a negative errno.
pub(crate) fn number(call: impl FnOnce() -> Outcome<()>) -> c_int {
    number_of(|| call().map(|()| 0))
}

/// A number that is not negative, or a negative errno.
pub(crate) fn number_of(call: impl FnOnce() -> Outcome<c_int>) -> c_int {
    run(call).unwrap_or_else(|failure| -failure.tell())
}

/// A length, or -1.
pub(crate) fn length(call: impl FnOnce() -> Outcome<usize>) -> ssize_t {
    let len = run(|| {
        let too_long = |_| Failure::new(libc::EOVERFLOW, "the length is too large");
        ssize_t::try_from(call()?).map_err(too_long)
    });
    len.unwrap_or_else(|failure| {
        failure.tell();
        -1
    })
}

/// A handle that C owns, or NULL.
pub(crate) fn handle<T>(call: impl FnOnce() -> Outcome<T>) -> *mut T {
    match run(|| call().map(Box::new)) {
        Ok(handle) => Box::into_raw(handle),
        Err(failure) => {
            failure.tell();
            ptr::null_mut()
        }
    }
}

/// Returns the text of the last error of the calling thread, in UTF-8. It stays as it is until the
/// next error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn larder_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::io;

    use super::*;

    fn last_error() -> String {
        // SAFETY: it is a string of this thread.
        unsafe { CStr::from_ptr(larder_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(number(|| panic!("no {}", "bread")), -libc::EIO);
        assert_eq!(last_error(), "panicked: no bread");
        assert!(handle::<u8>(|| panic!("no butter")).is_null());
        assert_eq!(last_error(), "panicked: no butter");
        assert_eq!(length(|| std::panic::panic_any(1)), -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn each_thread_has_its_last_error() {
        number(|| Err(Failure::new(libc::EINVAL, "here, with a \0 in it")));
        let there = std::thread::spawn(|| {
            assert_eq!(last_error(), "");
            number(|| Err(Failure::new(libc::EINVAL, "there")));
            last_error()
        });
        assert_eq!(there.join().unwrap(), "there");
        assert_eq!(last_error(), "here, with a  in it");
        assert_eq!(number(|| Ok(())), 0);
    }
}
