//! Opening files below allowed folders, and no others: one policy for file tools and for the instruction files that a
//! model is told of.
//!
//! Deliberately absent: what a file is read for, and any idea of a tool, a model or a session.

pub mod code;
mod follow;
mod owners;
mod policy;
mod private;
mod read;

pub use follow::PATH_LINKS;
pub use owners::Owners;
pub use policy::{FoundEntry, OpenedFile, PATH_BYTES, PATH_TRIES, ParentFolders, Policy, open_below};
pub use private::READABLE_STATE;
pub use read::check_regular;
