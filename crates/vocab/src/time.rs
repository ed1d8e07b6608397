//! Time and chance, passed in so that tests own both.

use std::fmt;

/// A moment: milliseconds since the start of 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

/// Tells the time of day. Waiting is the runtime's affair.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Makes numbers that are unique everywhere and grow with time.
pub trait IdSource: Send + Sync {
    /// The next number.
    fn next(&self) -> UniqueNumber;
}

/// A number of an [`IdSource`], written as 32 hexadecimal digits; later ones sort after earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UniqueNumber(pub u128);

impl fmt::Display for UniqueNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
