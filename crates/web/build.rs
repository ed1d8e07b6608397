//! Embeds the page, which `make page` builds into `web/dist`, in the program. If there is no page, the program is built
//! without one and tells its users so.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[expect(clippy::disallowed_methods, reason = "this is how cargo tells a build script where to write")]
fn main() -> io::Result<()> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let dist = web.join("dist");
    // Cargo reruns the script every time if a watched path is missing, so it watches the closest folder that exists.
    let watched = [&dist, &web].into_iter().find(|folder| folder.is_dir());
    let watched = watched.map_or_else(|| PathBuf::from("build.rs"), Clone::clone);
    writeln!(io::stdout(), "cargo::rerun-if-changed={}", watched.display())?;
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo did not set OUT_DIR"))?;
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect_files(&dist, &mut files)?;
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
    /// The list of all files as a Rust expression.
    fn code(&self) -> io::Result<String> {
        let mut code = String::from("&[\n");
        for file in self.files.iter().filter(|file| !is_compressed(file)) {
            let path = file.strip_prefix(&self.dist).map_err(io::Error::other)?.display();
            let mut hasher = DefaultHasher::new();
            hasher.write(&fs::read(file)?);
            let tag = hasher.finish();
            let (plain, brotli, gzip) =
                (self.copy(file)?, self.compressed(file, "br")?, self.compressed(file, "gz")?);
            code.push_str(&format!(
                "    Asset {{ path: \"/{path}\", tag: \"\\\"{tag:016x}\\\"\", plain: {plain}, brotli: {brotli}, gzip: {gzip} }},\n"
            ));
        }
        code.push_str("]\n");
        Ok(code)
    }

    /// The compressed form of a file, if there is one.
    fn compressed(&self, file: &Path, extension: &str) -> io::Result<String> {
        let compressed = PathBuf::from(format!("{}.{extension}", file.display()));
        match self.files.contains(&compressed) {
            true => Ok(format!("Some({})", self.copy(&compressed)?)),
            false => Ok("None".to_owned()),
        }
    }

    /// An expression with the content of a file. Includes a copy, since `make page` may replace the file before the
    /// compiler reads it.
    fn copy(&self, file: &Path) -> io::Result<String> {
        let name = file.file_name().ok_or_else(|| io::Error::other("a path in web/dist has no file name"))?;
        let copy = self.out.join(name);
        fs::copy(file, &copy)?;
        Ok(format!("include_bytes!({copy:?})"))
    }
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Whether a file is the compressed form of another.
fn is_compressed(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "br" || extension == "gz")
}
