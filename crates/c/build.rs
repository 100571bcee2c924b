//! Gives the shared library the name under which programs find it.

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets it");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,liblarder.so.{version}");
    println!("cargo:rerun-if-changed=build.rs");
}
