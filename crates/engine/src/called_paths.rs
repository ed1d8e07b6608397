//! The paths of a tool call, for the policy.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parlor_tools::{Policy, ToolAccess};

/// The path of a call as it is written, and with all links resolved. `folder` is the working folder. Empty if the call has
/// no path, or one that the tool cannot open either; then its failure says why.
pub async fn called_paths(access: &ToolAccess, policy: &Arc<Policy>, folder: &Path) -> Vec<PathBuf> {
    let Some(path) = access.path.clone() else { return Vec::new() };
    let (policy, folder) = (Arc::clone(policy), folder.to_owned());
    let resolved = tokio::task::spawn_blocking(move || policy.resolve(&folder, &path)).await;
    let Ok(Ok((written, resolved))) = resolved else { return Vec::new() };
    let written = without_dots(&written);
    let resolved = Some(resolved).filter(|resolved| *resolved != written);
    std::iter::once(written).chain(resolved).collect()
}

/// The path without `.` and `..`, as if there were no links.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}
