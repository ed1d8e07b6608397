//! Calls of the responses form: each is made once, however and however often it is told.

use parlor_model::provider::ProviderKind;
use serde_json::{Value, json};

use crate::server::{Heard, ask, data};

/// The frame that tells of an item, with `more` members.
fn told(kind: &str, item: Value, more: &Value) -> String {
    let mut frame = json!({"type": format!("response.output_item.{kind}"), "item": item});
    fill(&mut frame, more);
    data(&frame)
}

/// A frame about the input of a call.
fn input(kind: &str, more: &Value) -> String {
    let mut frame = json!({"type": format!("response.function_call_arguments.{kind}")});
    fill(&mut frame, more);
    data(&frame)
}

fn end(output: &[Value]) -> String {
    data(
        &json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}}),
    )
}

/// An item that is a call of `x`, with `more` members.
fn call(arguments: impl Into<Value>, more: &Value) -> Value {
    let mut item = json!({"type": "function_call", "name": "x", "arguments": arguments.into()});
    fill(&mut item, more);
    item
}

fn fill(value: &mut Value, more: &Value) {
    for (name, member) in more.as_object().into_iter().flatten() {
        value[name] = member.clone();
    }
}

async fn heard(stream: String) -> Heard {
    ask(ProviderKind::OpenAiResponses, &stream).await
}

const INPUT: &str = "{\"n\":1}";

#[tokio::test]
async fn a_call_is_made_once_whatever_is_left_out_when_it_is_told() {
    let (named, numbered, nothing) =
        (json!({"id": "f", "call_id": "a"}), json!({"output_index": 0}), json!({}));
    let unnamed = json!({"id": "f"});
    let renamed = json!({"id": "g", "call_id": "a"});
    let named_anew = json!({"id": "g", "call_id": "b"});
    // How it is named when it begins, when it is told and at the end of the answer, and whether it is numbered when it
    // begins and when it is told.
    let cases: [[&Value; 5]; 9] = [
        [&named, &named, &named, &numbered, &numbered],
        [&named, &named, &named, &numbered, &nothing],
        [&named, &named, &named, &nothing, &numbered],
        [&unnamed, &named, &named, &numbered, &numbered],
        [&unnamed, &named, &named, &nothing, &nothing],
        [&named, &renamed, &renamed, &numbered, &numbered],
        [&named, &named, &named_anew, &numbered, &numbered],
        [&named, &named_anew, &named_anew, &numbered, &numbered],
        [&named, &nothing, &nothing, &nothing, &nothing],
    ];
    for case in cases {
        let [begun, done, ended, first, second] = case;
        let mut more = json!({"delta": INPUT});
        fill(&mut more, first);
        let stream = told("added", call("", begun), first)
            + &input("delta", &more)
            + &told("done", call(INPUT, done), second)
            + &end(&[call(INPUT, ended)]);
        assert_eq!(heard(stream).await.calls(), [("a", "x", INPUT)], "{case:?}");
    }
    let two = |n: u32| {
        let input_of = format!("[{n}]");
        told("added", call("", &nothing), &nothing)
            + &input("delta", &json!({"delta": input_of}))
            + &told("done", call(input_of, &nothing), &nothing)
    };
    let stream = two(1) + &two(2) + &end(&[call("[1]", &nothing), call("[2]", &nothing)]);
    assert_eq!(heard(stream).await.calls(), [("", "x", "[1]"), ("", "x", "[2]")]);
}

#[tokio::test]
async fn calls_are_told_apart_by_the_names_of_their_items() {
    let item = |n: u32| json!({"id": format!("f{n}"), "call_id": format!("a{n}")});
    let more = |n: u32, text: &str| input("delta", &json!({"item_id": format!("f{n}"), "delta": text}));
    let begun: String = (0..2).map(|n| told("added", call("", &item(n)), &json!({}))).collect();
    let written = more(1, "{\"n\"") + &more(0, "{\"n\":") + &more(1, ":1}") + &more(0, "0}");
    let heard = heard(begun + &written + &end(&[])).await;
    assert_eq!(heard.calls(), [("a0", "x", "{\"n\":0}"), ("a1", "x", "{\"n\":1}")]);
}

#[tokio::test]
async fn an_input_counts_wherever_it_is_told() {
    let (name, number) = (json!({"id": "f", "call_id": "a"}), json!({"output_index": 0}));
    let empty = told("added", call("", &name), &number) + &told("done", call("", &name), &number);
    let all = json!({"item_id": "f", "output_index": 0, "arguments": INPUT});
    let object = json!({"n": 1});
    for stream in [
        told("done", call(object.clone(), &name), &number) + &end(&[]),
        end(&[call(object, &name)]),
        empty.clone() + &end(&[call(INPUT, &name)]),
        told("added", call("", &name), &number) + &input("done", &all) + &end(&[]),
        told("added", call("", &name), &number)
            + &input("done", &all)
            + &told("done", call("", &name), &number)
            + &end(&[call("", &name)]),
        input("done", &all) + &told("done", call(INPUT, &name), &number) + &end(&[]),
    ] {
        assert_eq!(heard(stream.clone()).await.calls(), [("a", "x", INPUT)], "{stream}");
    }
}

#[tokio::test]
async fn a_call_that_comes_with_the_end_alone_is_made_beside_others() {
    let item = |n: u32| json!({"id": format!("f{n}"), "call_id": format!("a{n}")});
    let first = told("done", call("[0]", &item(0)), &json!({"output_index": 0}));
    let heard = heard(first + &end(&[call("[0]", &item(0)), call("[1]", &item(1))])).await;
    assert_eq!(heard.calls(), [("a0", "x", "[0]"), ("a1", "x", "[1]")]);
}
