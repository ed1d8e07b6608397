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
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo names no folder"))?;
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        gather(&dist, &mut files)?;
    }
    files.sort();
    let assets = Assets { dist, out: out.into(), files };
    fs::write(assets.out.join("assets.rs"), assets.code()?)
}

struct Assets {
    dist: PathBuf,
    out: PathBuf,
    files: Vec<PathBuf>,
}

impl Assets {
    /// A list of all files, in Rust.
    fn code(&self) -> io::Result<String> {
        let mut code = String::from("&[\n");
        for file in self.files.iter().filter(|file| !is_packed(file)) {
            let path = file.strip_prefix(&self.dist).map_err(io::Error::other)?.display();
            let mut hasher = DefaultHasher::new();
            hasher.write(&fs::read(file)?);
            let tag = hasher.finish();
            let (plain, brotli, gzip) =
                (self.copy(file)?, self.packed(file, "br")?, self.packed(file, "gz")?);
            code.push_str(&format!(
                "    Asset {{ path: \"/{path}\", tag: \"\\\"{tag:016x}\\\"\", plain: {plain}, brotli: {brotli}, gzip: {gzip} }},\n"
            ));
        }
        code.push_str("]\n");
        Ok(code)
    }

    /// The file in fewer bytes, if it is there so.
    fn packed(&self, file: &Path, ending: &str) -> io::Result<String> {
        let packed = PathBuf::from(format!("{}.{ending}", file.display()));
        match self.files.contains(&packed) {
            true => Ok(format!("Some({})", self.copy(&packed)?)),
            false => Ok("None".to_owned()),
        }
    }

    /// The contents of a file: of a copy, for the page may be built again before the compiler reads it.
    fn copy(&self, file: &Path) -> io::Result<String> {
        let name = file.file_name().ok_or_else(|| io::Error::other("a file has a name"))?;
        let copy = self.out.join(name);
        fs::copy(file, &copy)?;
        Ok(format!("include_bytes!({copy:?})"))
    }
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
