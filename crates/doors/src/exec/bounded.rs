//! Deserializers of lists and maps that fail at more than [`MAX_ITEMS`] items.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::wire::MAX_ITEMS;

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
    fn a_map_above_the_limit_is_refused() {
        let member = |number: usize| format!(r#""{number}":"""#);
        let text = |count: usize| format!("{{{}}}", (0..count).map(member).collect::<Vec<_>>().join(","));
        let count = |text: &str| map(&mut serde_json::Deserializer::from_str(text)).map(|map| map.len());
        assert_eq!(count(&text(3)).unwrap(), 3);
        assert!(count(&text(MAX_ITEMS + 1)).is_err());
    }
}
