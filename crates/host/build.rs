//! Makes the files of the page, which `make page` builds into `web/dist`, a part of the program. Where there
//! are none the program has none, and says so.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[expect(clippy::disallowed_methods, reason = "this is how cargo tells a build script where to write")]
fn main() -> io::Result<()> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let dist = web.join("dist");
    // What is missing counts as changed, each time; the folder that it will be in says when it comes.
    let watched = [&dist, &web].into_iter().find(|folder| folder.is_dir());
    let watched = watched.map_or_else(|| PathBuf::from("build.rs"), Clone::clone);
    writeln!(io::stdout(), "cargo::rerun-if-changed={}", watched.display())?;
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        gather(&dist, &mut files)?;
    }
    files.sort();
    let packed = |file: &Path, ending: &str| {
        let packed = PathBuf::from(format!("{}.{ending}", file.display()));
        if files.contains(&packed) { format!("Some(include_bytes!({packed:?}))") } else { "None".to_owned() }
    };
    let mut assets = String::from("&[\n");
    for file in files.iter().filter(|file| !is_packed(file)) {
        let path = file.strip_prefix(&dist).map_err(io::Error::other)?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&fs::read(file)?);
        let (tag, brotli, gzip) = (hasher.finish(), packed(file, "br"), packed(file, "gz"));
        assets.push_str(&format!(
            "    Asset {{ path: \"/{}\", tag: \"\\\"{tag:016x}\\\"\", plain: include_bytes!({file:?}), brotli: {brotli}, gzip: {gzip} }},\n",
            path.display()
        ));
    }
    assets.push_str("]\n");
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo names no folder"))?;
    fs::write(Path::new(&out).join("assets.rs"), assets)
}

fn gather(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Whether it is another file in fewer bytes.
fn is_packed(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "br" || ending == "gz")
}
