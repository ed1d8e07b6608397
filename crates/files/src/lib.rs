//! Opens files below allowed folders, and no others. File tools, and the code that finds instruction files for models, use
//! this one policy.
//!
//! The crate knows nothing of tools, models or sessions.

pub mod failure;
mod follow;
mod obeyed;
mod owners;
mod policy;
mod private;
mod read;
mod secrets;

pub use follow::{PATH_LINKS, follow_links};
pub use owners::TrustedOwners;
pub use policy::{
    FileLocation, NEW_FOLDERS, OpenedFile, PATH_BYTES, PATH_TRIES, ParentFolders, Policy, open_below,
};
pub use private::READABLE_STATE;
pub use read::check_regular;
