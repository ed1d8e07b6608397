//! How the program is linked.

use std::io::{self, Write};

#[expect(clippy::disallowed_methods, reason = "this is how cargo tells a build script what it builds for")]
fn main() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "cargo::rerun-if-changed=build.rs")?;
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        // The loader reads the whole table of relocations, and so makes it a part of every process: 0.8 MB of them, or
        // 13 KB in this form. Needs glibc 2.36 and a linker of 2022.
        writeln!(out, "cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs")?;
    }
    Ok(())
}
