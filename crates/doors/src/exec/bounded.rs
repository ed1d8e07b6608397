//! Deserializers of lists and maps that fail at more items than their limit, before they have taken all.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::wire::MAX_ITEMS;

/// A list of at most `MAX` items.
#[derive(Debug)]
pub(super) struct Few<T, const MAX: usize>(pub(super) Vec<T>);

impl<T, const MAX: usize> Default for Few<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Few<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FewVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for FewVisitor<T, MAX> {
            type Value = Few<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a sequence of at most {MAX} items")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut few = Few::default();
                while let Some(item) = items.next_element()? {
                    if few.0.len() == MAX {
                        return Err(A::Error::custom(format_args!("more than {MAX} items")));
                    }
                    few.0.push(item);
                }
                Ok(few)
            }
        }
        deserializer.deserialize_seq(FewVisitor(PhantomData))
    }
}

/// A list of at most [`MAX_ITEMS`] strings.
pub(super) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct ListVisitor;
    impl<'de> Visitor<'de> for ListVisitor {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                check_length(list.len())?;
                list.push(item);
            }
            Ok(list)
        }
    }
    deserializer.deserialize_seq(ListVisitor)
}

/// A map of at most [`MAX_ITEMS`] strings.
pub(super) fn map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct MapVisitor;
    impl<'de> Visitor<'de> for MapVisitor {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((name, value)) = items.next_entry()? {
                check_length(map.len())?;
                map.insert(name, value);
            }
            Ok(map)
        }
    }
    deserializer.deserialize_map(MapVisitor)
}

fn check_length<E: Error>(length: usize) -> Result<(), E> {
    if length >= MAX_ITEMS { Err(E::custom(format_args!("more than {MAX_ITEMS} items"))) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_of(count: usize) -> Result<usize, String> {
        let text = format!("[{}]", vec![r#""""#; count].join(","));
        let mut deserializer = serde_json::Deserializer::from_str(&text);
        list(&mut deserializer).map(|list| list.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_list_at_the_limit_is_accepted_and_one_more_item_is_refused() {
        assert_eq!(list_of(MAX_ITEMS), Ok(MAX_ITEMS));
        assert!(list_of(MAX_ITEMS + 1).unwrap_err().contains("more than 262144 items"));
    }

    #[test]
    fn a_short_list_is_refused_at_its_first_item_too_many() {
        let few =
            |text: &str| serde_json::from_str::<Few<u8, 3>>(text).map(|few| few.0).map_err(|e| e.to_string());
        assert_eq!(few("[1,2,3]"), Ok(vec![1, 2, 3]));
        // The rest is not even looked at.
        assert!(few("[1,2,3,4,no").unwrap_err().contains("more than 3 items"));
    }

    #[test]
    fn a_map_above_the_limit_is_refused() {
        let member = |number: usize| format!(r#""{number}":"""#);
        let text = |count: usize| format!("{{{}}}", (0..count).map(member).collect::<Vec<_>>().join(","));
        let count = |text: &str| map(&mut serde_json::Deserializer::from_str(text)).map(|map| map.len());
        assert_eq!(count(&text(3)).unwrap(), 3);
        assert!(count(&text(MAX_ITEMS + 1)).is_err());
    }
}
